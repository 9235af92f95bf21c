#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>

#include "base/log.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kArgmaxChunks = 64;  // whose maxima lie on the stack
constexpr int kSortedTail = 32;    // of a selection by mass: below, sorting is quicker

// A token that may be drawn. Its weight is its probability times a factor that all share.
struct Candidate {
  float logit = 0;
  float weight = 0;
  int32_t token = 0;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

std::vector<float> ChunkMaxima(const CpuKernels& cpu, const float* logits, int64_t n) {
  std::vector<float> maxima(static_cast<size_t>((n + kLogitChunk - 1) / kLogitChunk));
  cpu.chunk_maxima(logits, n, maxima.data());
  return maxima;
}

// The tokens whose logit is at least `bound`, by id.
void Gather(std::span<const float> logits, std::span<const float> maxima, float bound,
            std::vector<Candidate>* out) {
  out->clear();
  for (size_t chunk = 0; chunk < maxima.size(); ++chunk) {
    if (!(maxima[chunk] >= bound)) continue;
    const size_t first = chunk * kLogitChunk, end = std::min(first + kLogitChunk, logits.size());
    for (size_t token = first; token < end; ++token)
      if (logits[token] >= bound)
        out->push_back({.logit = logits[token], .token = static_cast<int32_t>(token)});
  }
}

// Leaves the candidates that are no worse than `last`.
void KeepUpTo(const Candidate& last, std::vector<Candidate>* candidates) {
  std::erase_if(*candidates, [&](const Candidate& c) { return Better(last, c); });
}

// The k best of all tokens, by id; NaN is never among them.
std::vector<Candidate> BestTokens(std::span<const float> logits, std::span<const float> maxima,
                                  int32_t k) {
  // k chunks reach the k-th largest maximum, so at least k tokens do.
  float bound = -kInfinity;
  if (static_cast<size_t>(k) <= maxima.size()) {
    std::vector<float> order(maxima.begin(), maxima.end());
    std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<>());
    bound = order[static_cast<size_t>(k) - 1];
  }
  std::vector<Candidate> best;
  Gather(logits, maxima, bound, &best);
  if (best.size() <= static_cast<size_t>(k)) return best;
  std::vector<Candidate> order = best;
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), Better);
  KeepUpTo(order[static_cast<size_t>(k) - 1], &best);
  return best;
}

double Mass(std::span<const Candidate> candidates) {
  double mass = 0;
  for (const Candidate& c : candidates) mass += static_cast<double>(c.weight);
  return mass;
}

// Leaves the smallest set of best candidates whose mass reaches `target`: halves the range that the
// last of them lies in until it is short enough to sort.
void KeepMass(double target, std::vector<Candidate>* candidates) {
  std::vector<Candidate> order = *candidates;
  const auto begin = order.begin();
  ptrdiff_t low = 0, high = static_cast<ptrdiff_t>(order.size());
  double above = 0;  // mass of [0, low)
  while (high - low > kSortedTail) {
    const ptrdiff_t middle = low + (high - low) / 2;
    std::nth_element(begin + low, begin + middle, begin + high, Better);
    const double mass = Mass({begin + low, begin + middle});
    if (above + mass >= target) {
      high = middle;
    } else {
      above += mass;
      low = middle;
    }
  }
  std::sort(begin + low, begin + high, Better);
  for (; low < high - 1; ++low) {
    above += static_cast<double>(order[static_cast<size_t>(low)].weight);
    if (above >= target) break;
  }
  KeepUpTo(order[static_cast<size_t>(low)], candidates);
}

// Bias, bans and penalties. Ids beyond the vocabulary that may be chosen (a prompt can hold some)
// have no logit to change.
void EditLogits(const SampleArgs& args) {
  const SamplingParams& params = *args.params;
  const auto known = [&](int32_t token) { return token >= 0 && token < args.vocab; };
  for (const auto& [token, bias] : params.logit_bias)
    if (known(token)) args.logits[token] += bias;
  for (const int32_t token : args.banned)
    if (known(token)) args.logits[token] = -kInfinity;
  for (const TokenCount& count : args.counts) {
    if (!known(count.token)) continue;
    float& logit = args.logits[count.token];
    if (params.repetition_penalty != 1.0f && (count.in_prompt || count.in_output > 0))
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count.in_output);
    logit -= params.presence_penalty;
  }
}

// What a row of edited logits lets the draw choose from.
class Distribution {
 public:
  Distribution(const CpuKernels& cpu, const SampleArgs& args);

  int32_t Draw(float uniform) const;
  std::vector<float> Probabilities() const;

 private:
  int32_t Best() const;
  void Filter();
  void GatherMass(double target);
  void Weigh();
  int32_t DrawCandidate(float uniform) const;

  const CpuKernels& cpu_;
  const SamplingParams& params_;
  const std::span<const float> logits_;
  std::vector<float> maxima_;  // of chunks
  float max_ = -kInfinity;
  float inverse_temperature_ = 0;
  std::optional<int32_t> certain_;     // the only choice, which can be kNoToken
  bool filtered_ = false;              // only candidates_ may be drawn
  std::vector<Candidate> candidates_;  // by id
  std::vector<float> sums_;            // of chunks: weights of all tokens, when not filtered
};

Distribution::Distribution(const CpuKernels& cpu, const SampleArgs& args)
    : cpu_(cpu),
      params_(*args.params),
      logits_(args.logits, static_cast<size_t>(args.vocab)),
      maxima_(ChunkMaxima(cpu, args.logits, args.vocab)),
      max_(*std::max_element(maxima_.begin(), maxima_.end())),
      inverse_temperature_(1.0f / params_.temperature) {
  const bool greedy = !(params_.temperature > 0) || std::isinf(inverse_temperature_);
  if (std::isinf(max_)) {
    certain_ = kNoToken;
  } else if (greedy) {
    certain_ = Best();
  } else {
    Filter();
  }
}

// The best token, the first of equals.
int32_t Distribution::Best() const {
  size_t chunk = 0;
  while (maxima_[chunk] != max_) ++chunk;
  size_t token = chunk * kLogitChunk;
  while (logits_[token] != max_) ++token;
  return static_cast<int32_t>(token);
}

void Distribution::Filter() {
  const bool top_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits_.size();
  const bool top_p = params_.top_p<1, min_p = params_.min_p> 0;
  if (!top_k) {
    sums_.resize(maxima_.size());
    cpu_.chunk_sums(logits_.data(), static_cast<int64_t>(logits_.size()), max_,
                    inverse_temperature_, sums_.data());
  }
  filtered_ = top_k || top_p || min_p;
  if (!filtered_) return;
  if (top_k) {
    candidates_ = BestTokens(logits_, maxima_, params_.top_k);
    Weigh();
    if (top_p) KeepMass(static_cast<double>(params_.top_p) * Mass(candidates_), &candidates_);
  } else if (top_p) {
    double total = 0;
    for (const float sum : sums_) total += static_cast<double>(sum);
    GatherMass(static_cast<double>(params_.top_p) * total);
    KeepMass(static_cast<double>(params_.top_p) * total, &candidates_);
  } else {
    // A little below the limit; the weights decide.
    const float slack = 1e-3f * params_.temperature + 1e-6f * std::abs(max_);
    Gather(logits_, maxima_, max_ + params_.temperature * std::log(params_.min_p) - slack,
           &candidates_);
    Weigh();
  }
  // The best token weighs 1.
  if (min_p)
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params_.min_p; });
}

// Gathers the best tokens until their mass reaches `target`: most rows need few of them.
void Distribution::GatherMass(double target) {
  for (const float depth : {4.0f, 8.0f, 16.0f, 32.0f, kInfinity}) {
    Gather(logits_, maxima_, max_ - depth * params_.temperature, &candidates_);
    Weigh();
    if (Mass(candidates_) >= target) return;
  }
}

void Distribution::Weigh() {
  std::vector<float> values(candidates_.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = candidates_[i].logit;
  cpu_.logit_weights(values.data(), static_cast<int64_t>(values.size()), max_, inverse_temperature_,
                     values.data());
  for (size_t i = 0; i < values.size(); ++i) candidates_[i].weight = values[i];
}

int32_t Distribution::DrawCandidate(float uniform) const {
  const double target = static_cast<double>(uniform) * Mass(candidates_);
  double below = 0;
  int32_t last = candidates_[0].token;
  for (const Candidate& c : candidates_) {
    if (c.weight > 0) last = c.token;
    below += static_cast<double>(c.weight);
    if (below > target) return c.token;
  }
  return last;
}

// The first token at which the running sum of weights, by id, exceeds uniform * total.
int32_t Distribution::Draw(float uniform) const {
  if (certain_.has_value()) return *certain_;
  if (filtered_) return DrawCandidate(uniform);
  double total = 0, below = 0;
  for (const float sum : sums_) total += static_cast<double>(sum);
  const double target = static_cast<double>(uniform) * total;
  size_t chunk = 0;
  for (; chunk + 1 < sums_.size(); ++chunk) {
    if (below + static_cast<double>(sums_[chunk]) > target) break;
    below += static_cast<double>(sums_[chunk]);
  }
  const size_t first = chunk * kLogitChunk;
  const size_t count = std::min<size_t>(kLogitChunk, logits_.size() - first);
  float weights[kLogitChunk];
  cpu_.logit_weights(logits_.data() + first, static_cast<int64_t>(count), max_,
                     inverse_temperature_, weights);
  size_t last = 0;  // the chunk's sum was rounded on another way than this one
  for (size_t i = 0; i < count; ++i) {
    if (weights[i] > 0) last = i;
    below += static_cast<double>(weights[i]);
    if (below > target) break;
  }
  return static_cast<int32_t>(first + last);
}

std::vector<float> Distribution::Probabilities() const {
  std::vector<float> out(logits_.size());
  if (certain_.has_value()) {
    if (*certain_ != kNoToken) out[static_cast<size_t>(*certain_)] = 1;
    return out;
  }
  if (filtered_) {
    for (const Candidate& c : candidates_) out[static_cast<size_t>(c.token)] = c.weight;
  } else {
    cpu_.logit_weights(logits_.data(), static_cast<int64_t>(logits_.size()), max_,
                       inverse_temperature_, out.data());
  }
  double total = 0;
  for (const float weight : out) total += static_cast<double>(weight);
  for (float& weight : out) weight = static_cast<float>(static_cast<double>(weight) / total);
  return out;
}

// Log-probabilities of raw logits.
class Logprobs {
 public:
  Logprobs(const CpuKernels& cpu, const SampleArgs& args)
      : logits_(args.logits, args.logits + args.vocab),
        maxima_(ChunkMaxima(cpu, args.logits, args.vocab)) {
    const float max = *std::max_element(maxima_.begin(), maxima_.end());
    std::vector<float> sums(maxima_.size());
    cpu.chunk_sums(logits_.data(), args.vocab, max, 1.0f, sums.data());
    double total = 0;
    for (const float sum : sums) total += static_cast<double>(sum);
    log_total_ = static_cast<double>(max) + std::log(total);
  }

  // -infinity where the logit is, or is NaN, and for kNoToken.
  float Of(int32_t token) const {
    if (token == kNoToken) return -kInfinity;
    const float logit = logits_[static_cast<size_t>(token)];
    if (!(logit > -kInfinity) || !std::isfinite(log_total_)) return -kInfinity;
    return static_cast<float>(static_cast<double>(logit) - log_total_);
  }

  std::vector<std::pair<int32_t, float>> Best(int32_t count) const {
    std::vector<std::pair<int32_t, float>> out;
    if (count <= 0) return out;
    std::vector<Candidate> best = BestTokens(logits_, maxima_, count);
    std::sort(best.begin(), best.end(), Better);
    for (const Candidate& c : best)
      if (std::isfinite(c.logit)) out.emplace_back(c.token, Of(c.token));
    return out;
  }

 private:
  std::vector<float> logits_, maxima_;
  double log_total_ = 0;
};

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * counter[0];
    const uint64_t b = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9e3779b9;  // the golden ratio
    key[1] += 0xbb67ae85;  // sqrt(3) - 1
  }
  return counter;
}

float PhiloxUniform(uint64_t seed, uint32_t choice, uint32_t position) {
  const std::array<uint32_t, 4> words = Philox4x32(
      {position, choice, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(words[0] >> 8) * 0x1p-24f;
}

SampledToken SampleToken(const CpuKernels& cpu, const SampleArgs& args) {
  CHECK_GT(args.vocab, 0);
  const SamplingParams& params = *args.params;
  SampledToken out;
  if (params.num_logprobs < 0) {
    EditLogits(args);
    out.token =
        Distribution(cpu, args).Draw(PhiloxUniform(params.seed, params.choice, args.position));
    return out;
  }
  const Logprobs logprobs(cpu, args);
  EditLogits(args);
  out.token =
      Distribution(cpu, args).Draw(PhiloxUniform(params.seed, params.choice, args.position));
  out.logprob = logprobs.Of(out.token);
  out.top_logprobs = logprobs.Best(params.num_logprobs);
  return out;
}

std::vector<float> FilteredProbabilities(const CpuKernels& cpu, const SampleArgs& args) {
  CHECK_GT(args.vocab, 0);
  EditLogits(args);
  return Distribution(cpu, args).Probabilities();
}

int32_t Argmax(const CpuKernels& cpu, const float* values, int64_t n) {
  constexpr int64_t kPass = int64_t{kArgmaxChunks} * kLogitChunk;
  float best = -kInfinity;
  int64_t best_chunk = -1;  // where it starts
  for (int64_t first = 0; first < n; first += kPass) {
    float maxima[kArgmaxChunks];
    const int64_t count = std::min(kPass, n - first);
    cpu.chunk_maxima(values + first, count, maxima);
    for (int64_t i = 0; i * kLogitChunk < count; ++i) {
      if (!(maxima[i] > best)) continue;
      best = maxima[i];
      best_chunk = first + i * kLogitChunk;
    }
  }
  if (best_chunk < 0) return 0;
  while (values[best_chunk] != best) ++best_chunk;
  return static_cast<int32_t>(best_chunk);
}

}  // namespace cairn

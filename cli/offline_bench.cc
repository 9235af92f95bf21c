// `cairn bench`: prefill and decode rates through the real engine, as llama-bench defines pp, tg
// and depth, and the share of the machine's memory bandwidth that decoding reaches.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/memory_bandwidth.h"
#include "cli/offline.h"
#include "cli/offline_engine.h"
#include "cli/verbs.h"
#include "kernels/attention_plan.h"
#include "kernels/kv_layout.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

class Bench {
 public:
  explicit Bench(const BenchFlags& flags) : flags_(flags) {}

  absl::Status Run() {
    const int64_t longest = int64_t{flags_.depth} + std::max(flags_.prompt_tokens, 1) + flags_.gen;
    ASSIGN_OR_RETURN(offline_, OfflineEngine::Open(flags_.engine.model));
    const int32_t context = flags_.engine.context_tokens > 0 ? flags_.engine.context_tokens
                                                             : offline_->config().context_length;
    if (longest + 1 > context) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "depth + prompt + gen exceeds the context: tokens=%d limit=%d", longest + 1, context));
    }
    // Room for every repeat's own tokens beside the shared depth.
    RETURN_IF_ERROR(offline_->StartEngine(flags_.engine,
                                          {.max_running = std::max(flags_.batch, 1),
                                           .tokens_per_sequence = static_cast<int32_t>(longest) + 1,
                                           .prefix_cache = true}));
    ASSIGN_OR_RETURN(const double bandwidth, MeasureReadBandwidth(offline_->num_threads()));
    std::vector<double> prefill, decode;
    RETURN_IF_ERROR(WarmUp());
    for (int round = 0; round < flags_.repeat; ++round) {
      if (flags_.prompt_tokens > 0) RETURN_IF_ERROR(MeasurePrefill(&prefill));
      if (flags_.gen > 0) RETURN_IF_ERROR(MeasureDecode(&decode));
    }
    Report(prefill, decode, bandwidth);
    return absl::OkStatus();
  }

 private:
  std::vector<int32_t> RandomTokens(int32_t n) {
    std::vector<int32_t> out(n);
    for (int32_t& token : out)
      token =
          static_cast<int32_t>(random_() % static_cast<uint32_t>(offline_->config().vocab_size));
    return out;
  }

  GenerateRequest Request(const std::vector<int32_t>& prompt, int32_t max_tokens) {
    GenerateRequest request;
    request.id = "bench";
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }

  // Fills the caches and computes the depth once; later requests find it in the pool.
  absl::Status WarmUp() {
    depth_tokens_ = RandomTokens(flags_.depth);
    std::vector<int32_t> prompt = depth_tokens_;
    const std::vector<int32_t> more = RandomTokens(std::max(flags_.prompt_tokens, 1));
    prompt.insert(prompt.end(), more.begin(), more.end());
    std::vector<GenerateRequest> one;
    one.push_back(Request(prompt, std::min(flags_.gen + 1, 8)));
    return offline_->RunAll(std::move(one)).status();
  }

  // Time from the submission of new prompt tokens to the first token after them.
  absl::Status MeasurePrefill(std::vector<double>* rates) {
    std::vector<int32_t> prompt = depth_tokens_;
    const std::vector<int32_t> fresh = RandomTokens(flags_.prompt_tokens);
    prompt.insert(prompt.end(), fresh.begin(), fresh.end());
    std::vector<GenerateRequest> one;
    one.push_back(Request(prompt, 1));
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const auto results, offline_->RunAll(std::move(one)));
    const double seconds = SecondsSince(start);
    const int32_t computed =
        static_cast<int32_t>(prompt.size()) - results[0].back().usage.cached_tokens;
    rates->push_back(computed / seconds);
    return absl::OkStatus();
  }

  // Time from the first token of the last sequence to come up to the last token of all.
  absl::Status MeasureDecode(std::vector<double>* rates) {
    std::vector<GenerateRequest> requests;
    for (int b = 0; b < flags_.batch; ++b) {
      std::vector<int32_t> prompt = depth_tokens_;
      prompt.push_back(RandomTokens(1)[0]);
      requests.push_back(Request(prompt, flags_.gen + 1));
    }
    int started = 0;
    int64_t tokens = 0;
    Clock::time_point start;
    std::vector<bool> seen(requests.size());
    ASSIGN_OR_RETURN(const auto results,
                     offline_->RunAll(std::move(requests), [&](size_t i, const TokenEvent& event) {
                       if (!event.has_token) return true;
                       if (started == flags_.batch) ++tokens;
                       if (seen[i]) return true;
                       seen[i] = true;
                       if (++started == flags_.batch) start = Clock::now();
                       return true;
                     }));
    rates->push_back(static_cast<double>(tokens) / SecondsSince(start));
    return absl::OkStatus();
  }

  void Report(const std::vector<double>& prefill, const std::vector<double>& decode,
              double bandwidth) {
    // Whole tiles of the depth, which all sequences share, are read once by each item of a plan.
    const int64_t shared = flags_.depth / kAttentionTile * kAttentionTile;
    const int64_t own = flags_.depth - shared + flags_.gen / 2;
    const int64_t num_items = (flags_.batch + kQueryPositions - 1) / kQueryPositions;
    const double step_bytes = static_cast<double>(offline_->weight_bytes() +
                                                  offline_->kv_bytes_per_token() *
                                                      (shared * num_items + own * flags_.batch));
    nlohmann::json out = {{"model", flags_.engine.model}, {"threads", offline_->num_threads()},
                          {"tp", flags_.engine.tp},       {"numerics", flags_.engine.numerics},
                          {"depth", flags_.depth},        {"batch", flags_.batch},
                          {"repeat", flags_.repeat},      {"memory_bytes_per_s", bandwidth}};
    if (!prefill.empty()) {
      out["prompt_tokens"] = flags_.prompt_tokens;
      out["prefill_tokens_per_s"] = Median(prefill);
      out["prefill_runs"] = prefill;
    }
    if (!decode.empty()) {
      const double rate = Median(decode);
      out["gen_tokens"] = flags_.gen;
      out["decode_tokens_per_s"] = rate;
      out["decode_runs"] = decode;
      out["decode_bytes_per_step"] = step_bytes;
      out["decode_share_of_memory_bandwidth"] = rate / flags_.batch * step_bytes / bandwidth;
    }
    if (flags_.json) {
      std::printf("%s\n", out.dump().c_str());
      return;
    }
    std::printf("%s: %d threads, %d ranks, %s numerics, depth %d, batch %d\n",
                flags_.engine.model.c_str(), offline_->num_threads(), flags_.engine.tp,
                flags_.engine.numerics.c_str(), flags_.depth, flags_.batch);
    if (!prefill.empty())
      std::printf("prefill of %d tokens: %.1f tokens/s (median of %d)\n", flags_.prompt_tokens,
                  Median(prefill), flags_.repeat);
    if (!decode.empty())
      std::printf("decode of %d tokens: %.1f tokens/s (median of %d), %.0f %% of %.1f GB/s read\n",
                  flags_.gen, Median(decode), flags_.repeat,
                  100 * out["decode_share_of_memory_bandwidth"].get<double>(), bandwidth / 1e9);
  }

  const BenchFlags flags_;
  std::unique_ptr<OfflineEngine> offline_;
  std::vector<int32_t> depth_tokens_;
  std::mt19937 random_{12345};  // the same tokens in every run
};

}  // namespace

int RunOfflineBench(const BenchFlags& flags) {
  const absl::Status status = Bench(flags).Run();
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn

#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_kernels.h"
#include "tests/kernels/golden_tensors.h"

namespace cairn {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Pair;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A request's next token from logits that stay as they are.
struct Sampler {
  explicit Sampler(const SamplingParams& of = {}, std::vector<int32_t> never = {})
      : params(of), banned(std::move(never)) {}

  SamplingParams params;
  std::vector<TokenCount> counts;
  std::vector<int32_t> banned;
  const CpuKernels* cpu = &avx2::Kernels();

  SampledToken Sample(std::vector<float> logits, uint32_t position = 0) const {
    return SampleToken(*cpu, Args(&logits, position));
  }
  std::vector<float> Probabilities(std::vector<float> logits) const {
    return FilteredProbabilities(*cpu, Args(&logits, 0));
  }
  SampleArgs Args(std::vector<float>* logits, uint32_t position) const {
    return {.logits = logits->data(),
            .vocab = static_cast<int32_t>(logits->size()),
            .params = &params,
            .counts = counts,
            .banned = banned,
            .position = position};
  }
};

std::vector<float> RandomLogits(size_t n, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

// What the filters must leave, by sorting in double.
std::vector<double> ReferenceProbabilities(const std::vector<float>& logits,
                                           const SamplingParams& params) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size())
    order.resize(static_cast<size_t>(params.top_k));
  std::vector<double> out(logits.size());
  const double max = static_cast<double>(logits[order[0]]);
  double total = 0;
  for (const int token : order)
    total += out[token] = std::exp((static_cast<double>(logits[token]) - max) /
                                   static_cast<double>(params.temperature));
  double above = 0, kept = 0;
  for (const int token : order) {
    const bool keep = (params.top_p == 1 || above < static_cast<double>(params.top_p) * total) &&
                      out[token] >= static_cast<double>(params.min_p);
    above += out[token];
    if (!keep) out[token] = 0;
    kept += out[token];
  }
  for (double& p : out) p /= kept;
  return out;
}

// The values Random123 publishes in kat_vectors.
TEST(PhiloxTest, MeetsThePublishedKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, UniformDependsOnSeedChoiceAndPositionAlone) {
  EXPECT_EQ(PhiloxUniform(0, 0, 0), static_cast<float>(0x6627e8d5 >> 8) * 0x1p-24f);
  EXPECT_NE(PhiloxUniform(1, 0, 0), PhiloxUniform(0, 0, 0));
  EXPECT_NE(PhiloxUniform(uint64_t{1} << 32, 0, 0), PhiloxUniform(1, 0, 0));
  EXPECT_NE(PhiloxUniform(0, 1, 0), PhiloxUniform(0, 0, 1));
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_GE(PhiloxUniform(9, 0, i), 0);
    EXPECT_LT(PhiloxUniform(9, 0, i), 1);
  }
}

TEST(SamplingTest, FiltersMeetGoldenDataOfAnotherEngine) {
  const GoldenTensors golden("techniques/sampling");
  ASSERT_TRUE(golden.ok());
  int checked = 0;
  for (const auto& [name, c] : golden.cases().items()) {
    if (!c.is_object()) continue;
    const std::vector<float> logits = golden.Values(name.substr(0, name.find('.')) + ".logits");
    const float temperature = std::stof(name.substr(name.find(".T") + 2));
    const auto check = [&](const std::string& filter, const SamplingParams& params) {
      SCOPED_TRACE(name + "." + filter);
      const std::vector<float> want = golden.Values(name + "." + filter);
      const std::vector<float> got = Sampler(params).Probabilities(logits);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
      ++checked;
    };
    check("probs", {.temperature = temperature});
    check("top_k", {.temperature = temperature, .top_k = c["top_k"]});
    check("top_p", {.temperature = temperature, .top_p = c["top_p"]});
    check("min_p", {.temperature = temperature, .min_p = c["min_p"]});
  }
  EXPECT_EQ(checked, 60);
}

TEST(SamplingTest, FiltersMatchASortInDoubleOnEverySize) {
  for (const size_t vocab : {1, 2, 15, 16, 17, 63, 64, 65, 1000, 49152}) {
    for (const float spread : {0.01f, 1.0f, 5.0f}) {
      const std::vector<float> logits = RandomLogits(vocab, 11, spread);
      for (const SamplingParams& params :
           {SamplingParams{.temperature = 0.7f}, SamplingParams{.top_k = 1},
            SamplingParams{.temperature = 2, .top_k = 40}, SamplingParams{.top_k = 1500},
            SamplingParams{.top_p = 0.9f}, SamplingParams{.temperature = 1.3f, .top_p = 0.31f},
            SamplingParams{.top_p = 0.9999f}, SamplingParams{.min_p = 0.1f},
            SamplingParams{.temperature = 0.5f, .min_p = 1e-6f},
            SamplingParams{.top_k = 50, .top_p = 0.8f, .min_p = 0.02f},
            SamplingParams{.top_p = 0.8f, .min_p = 0.3f}}) {
        SCOPED_TRACE(testing::Message() << "vocab " << vocab << " spread " << spread << " T "
                                        << params.temperature << " top_k " << params.top_k
                                        << " top_p " << params.top_p << " min_p " << params.min_p);
        const std::vector<double> want = ReferenceProbabilities(logits, params);
        const std::vector<float> got = Sampler(params).Probabilities(logits);
        const auto kept = [](const auto& p) {
          return std::count_if(p.begin(), p.end(), [](auto x) { return x > 0; });
        };
        // In float the running mass can cross the limit a token earlier or later.
        ASSERT_NEAR(kept(got), kept(want), params.top_p < 1 ? 1 + 1e-3 * kept(want) : 0);
        for (size_t i = 0; i < vocab; ++i) ASSERT_NEAR(got[i], want[i], 2e-5 * want[i] + 3e-6);
      }
    }
  }
}

TEST(SamplingTest, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1, 3, 3, 3, 3, 0};
  EXPECT_EQ((Sampler({.temperature = 0}).Sample(logits).token), 1);
  EXPECT_THAT((Sampler({.top_k = 2}).Probabilities(logits)), ElementsAre(0, 0.5f, 0.5f, 0, 0, 0));
  EXPECT_THAT((Sampler({.top_p = 0.4f}).Probabilities(std::vector<float>(4, 7.0f))),
              ElementsAre(0.5f, 0.5f, 0, 0));
  EXPECT_EQ(Argmax(avx2::Kernels(), logits.data(), 6), 1);
}

// A temperature so high that all weights round to the same must not make top-k forget the order.
TEST(SamplingTest, TopKRanksLogitsNotRoundedProbabilities) {
  EXPECT_THAT((Sampler({.temperature = 1e30f, .top_k = 2}).Probabilities({1, 2, 3, 4})),
              ElementsAre(0, 0, 0.5f, 0.5f));
}

TEST(SamplingTest, GreedyTakesTheFirstLargestAtEveryPlace) {
  for (const size_t vocab : {1, 16, 63, 64, 65, 4096, 4097, 5000, 49152}) {
    std::vector<float> logits = RandomLogits(vocab, 5);
    for (const size_t at : {size_t{0}, vocab / 3, vocab - 1}) {
      std::vector<float> peaked = logits;
      peaked[at] = 100;
      peaked[vocab - 1] = 100;
      EXPECT_EQ((Sampler({.temperature = 0}).Sample(peaked).token), at);
      EXPECT_EQ(Argmax(avx2::Kernels(), peaked.data(), static_cast<int64_t>(vocab)), at);
      // Too low to divide by: greedy as well.
      EXPECT_EQ((Sampler({.temperature = 1e-42f}).Sample(peaked).token), at);
    }
  }
}

TEST(SamplingTest, DrawsFollowTheProbabilities) {
  constexpr uint32_t kDraws = 40000;
  const std::vector<float> logits = RandomLogits(40, 21, 1.0f);
  for (const SamplingParams& params :
       {SamplingParams{.seed = 1}, SamplingParams{.top_k = 12, .seed = 2},
        SamplingParams{.temperature = 1.5f, .top_p = 0.9f, .seed = 3},
        SamplingParams{.temperature = 0.8f, .min_p = 0.05f, .seed = 4, .choice = 7}}) {
    const Sampler sampler(params);
    const std::vector<float> expected = sampler.Probabilities(logits);
    std::vector<int> seen(logits.size());
    for (uint32_t position = 0; position < kDraws; ++position)
      ++seen[static_cast<size_t>(sampler.Sample(logits, position).token)];
    double chi_square = 0;
    int freedom = -1;
    for (size_t i = 0; i < seen.size(); ++i) {
      const double want = static_cast<double>(expected[i]) * kDraws;
      if (want == 0) {
        EXPECT_EQ(seen[i], 0);
        continue;
      }
      chi_square += (seen[i] - want) * (seen[i] - want) / want;
      ++freedom;
    }
    // Mean `freedom`, variance twice that: five standard deviations, and the seeds are fixed.
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2.0 * freedom)) << "seed " << params.seed;
    EXPECT_GT(chi_square, freedom - 4 * std::sqrt(2.0 * freedom)) << "seed " << params.seed;
  }
}

TEST(SamplingTest, DrawIsTheInverseOfTheRunningSum) {
  const std::vector<float> logits = RandomLogits(1000, 8, 2);
  const Sampler sampler({.seed = 77});
  const std::vector<float> p = sampler.Probabilities(logits);
  for (uint32_t position = 0; position < 500; ++position) {
    const auto token = static_cast<size_t>(sampler.Sample(logits, position).token);
    const double u = static_cast<double>(PhiloxUniform(77, 0, position));
    const double below = std::accumulate(p.begin(), p.begin() + token, 0.0);
    EXPECT_LE(below, u + 1e-6);
    EXPECT_GE(below + static_cast<double>(p[token]), u - 1e-6);
  }
}

// Equal draws alone and beside others, resumed, and for n choices as a set.
TEST(SamplingTest, SameSeedChoiceAndPositionDrawTheSame) {
  const std::vector<float> logits = RandomLogits(5000, 31);
  Sampler a({.seed = 5}), b({.seed = 6});
  std::vector<int32_t> alone, beside, other_choice;
  for (uint32_t i = 0; i < 50; ++i) alone.push_back(a.Sample(logits, i).token);
  for (uint32_t i = 0; i < 50; ++i) {
    b.Sample(logits, i);
    beside.push_back(a.Sample(logits, i).token);
  }
  a.params.choice = 1;
  for (uint32_t i = 0; i < 50; ++i) other_choice.push_back(a.Sample(logits, i).token);
  EXPECT_EQ(alone, beside);
  EXPECT_NE(alone, other_choice);
}

TEST(SamplingTest, PenaltiesAndBiasChangeLogitsInOrder) {
  const std::vector<float> logits = {2, 2, -2, -2, 1, 0};
  Sampler sampler({.repetition_penalty = 2, .presence_penalty = 0.25f, .frequency_penalty = 0.5f});
  sampler.params.logit_bias = {{5, 4.0f}, {4, -1.0f}};
  // 0: seen in the prompt; 1: generated twice; 2: prompt; 3: generated once; 5: biased, then seen.
  sampler.counts = {{0, 0, true}, {1, 2, false}, {2, 0, true}, {3, 1, false}, {5, 0, true}};
  const std::vector<double> edited = {1, 1 - 1 - 0.25, -4, -4 - 0.5 - 0.25, 0, 2};
  double total = 0;
  for (const double x : edited) total += std::exp(x);
  const std::vector<float> got = sampler.Probabilities(logits);
  for (size_t i = 0; i < edited.size(); ++i)
    EXPECT_NEAR(got[i], std::exp(edited[i]) / total, 1e-6) << i;
}

TEST(SamplingTest, IdsBeyondTheVocabularyAreIgnored) {
  Sampler sampler({.temperature = 0, .repetition_penalty = 2}, {-1, 4});
  sampler.params.logit_bias = {{-1, 9.0f}, {4, 9.0f}};
  sampler.counts = {{-3, 1, true}, {4, 1, true}, {1 << 30, 1, true}};
  EXPECT_EQ(sampler.Sample({0, 1, 2, 3}).token, 3);
}

TEST(SamplingTest, BannedIdsAreNeverDrawn) {
  const std::vector<float> logits = {9, 0, 8, 0};
  Sampler sampler({.temperature = 0}, {0, 2});
  EXPECT_EQ(sampler.Sample(logits).token, 1);
  sampler.params.temperature = 100;
  for (const float top_p : {1.0f, 0.99f}) {
    sampler.params.top_p = top_p;
    for (uint32_t position = 0; position < 300; ++position)
      EXPECT_EQ(sampler.Sample(logits, position).token % 2, 1);
  }
  sampler.params.logit_bias = {{2, 1e30f}};  // a bias does not lift a ban
  EXPECT_EQ(sampler.Sample(logits).token % 2, 1);
}

class SamplingHostileTest : public testing::TestWithParam<int> {};

// NaN is -infinity; where the largest logit is not finite there is nothing to choose.
TEST_P(SamplingHostileTest, NanAndInfinityChooseAmongNumbersOrNothing) {
  const SamplingParams kinds[] = {{.temperature = 0},
                                  {},
                                  {.top_k = 3},
                                  {.top_p = 0.5f},
                                  {.min_p = 0.5f},
                                  {.temperature = 1e38f},
                                  {.temperature = 1e-38f},
                                  {.top_k = 2, .top_p = 0.1f},
                                  {.top_p = 1e-30f}};
  Sampler sampler(kinds[GetParam()], {0, 1});
  sampler.params.num_logprobs = 3;
  for (const size_t vocab : {3, 16, 100, 200}) {
    for (uint32_t position = 0; position < 20; ++position) {
      const auto sample = [&](const std::vector<float>& logits) {
        return sampler.Sample(logits, position).token;
      };
      std::vector<float> logits(vocab, kNan);
      EXPECT_EQ(sample(logits), kNoToken);
      EXPECT_EQ(sample(std::vector<float>(vocab, -kInfinity)), kNoToken);
      logits[vocab - 1] = -5;
      EXPECT_EQ(sample(logits), static_cast<int32_t>(vocab - 1));
      logits[vocab - 1] = kInfinity;
      EXPECT_EQ(sample(logits), kNoToken);
      std::vector<float> huge(vocab, -3e38f);
      huge[vocab - 1] = 3e38f;
      EXPECT_EQ(sample(huge), static_cast<int32_t>(vocab - 1));
      std::vector<float> finite = RandomLogits(vocab, position);
      finite[2] = kNan;
      if (vocab > 3) {
        EXPECT_GT(sample(finite), 2);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, SamplingHostileTest, testing::Range(0, 9));

TEST(SamplingTest, WhereEverythingIsBannedThereIsNoToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature, .num_logprobs = 2}, {0, 1});
    const SampledToken got = sampler.Sample({1, 2});
    EXPECT_EQ(got.token, kNoToken);
    EXPECT_EQ(got.logprob, -kInfinity);
    EXPECT_EQ(got.top_logprobs.size(), 2u);  // of the raw logits
    EXPECT_THAT(sampler.Probabilities({1, 2}), ElementsAre(0, 0));
  }
}

TEST(SamplingTest, LogprobsAreOfTheRawLogits) {
  std::vector<float> logits = RandomLogits(3000, 40);
  logits[17] = logits[1200] = 12;  // a tie for the first place
  logits[5] = kNan;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    if (i != 5) total += std::exp(static_cast<double>(logits[i]));
  Sampler sampler({.temperature = 0, .num_logprobs = 4});
  sampler.params.logit_bias = {{700, 50.0f}};
  const SampledToken got = sampler.Sample(logits);
  EXPECT_EQ(got.token, 700);
  EXPECT_NEAR(got.logprob, static_cast<double>(logits[700]) - std::log(total), 2e-6);
  ASSERT_EQ(got.top_logprobs.size(), 4u);
  EXPECT_THAT(got.top_logprobs[0], Pair(17, testing::FloatNear(12 - std::log(total), 2e-6f)));
  EXPECT_EQ(got.top_logprobs[1].first, 1200);
  EXPECT_GE(got.top_logprobs[2].second, got.top_logprobs[3].second);

  sampler.params.num_logprobs = 0;
  EXPECT_THAT(sampler.Sample(logits).top_logprobs, testing::IsEmpty());
  EXPECT_EQ(sampler.Sample(logits).logprob, got.logprob);
  sampler.params.num_logprobs = -1;
  EXPECT_EQ(sampler.Sample(logits).logprob, 0);
  // More than there are: all that are numbers.
  sampler.params.num_logprobs = 10;
  sampler.params.logit_bias.clear();
  EXPECT_THAT(sampler.Sample({1, kNan, 3, -kInfinity}).top_logprobs,
              ElementsAre(Pair(2, testing::_), Pair(0, testing::_)));
}

TEST(SamplingTest, InstructionSetChangesNothing) {
  if (!ChooseIsa("avx512").ok()) GTEST_SKIP() << "this processor has no AVX-512";
  for (const size_t vocab : {17, 1000, 49152}) {
    const std::vector<float> logits = RandomLogits(vocab, 3);
    for (const SamplingParams& params :
         {SamplingParams{}, SamplingParams{.top_k = 40}, SamplingParams{.top_p = 0.9f},
          SamplingParams{.min_p = 0.01f}}) {
      const Sampler narrow(params);
      Sampler wide(params);
      wide.cpu = &avx512::Kernels();
      EXPECT_EQ(narrow.Probabilities(logits), wide.Probabilities(logits));
      for (uint32_t i = 0; i < 100; ++i)
        EXPECT_EQ(narrow.Sample(logits, i).token, wide.Sample(logits, i).token);
    }
  }
}

}  // namespace
}  // namespace cairn

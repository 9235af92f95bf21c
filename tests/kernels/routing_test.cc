#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "machine.h"
#include "reference.h"

namespace cairn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ExpertChoice> Choose(Isa isa, const RoutingRule& rule, const std::vector<float>& logits,
                                 const std::vector<float>& bias = {}) {
  std::vector<ExpertChoice> choices(static_cast<size_t>(rule.num_chosen));
  NewTeam(1, isa)->Run([&](const Context& context) {
    ChooseExperts(context, rule, logits.data(), bias.empty() ? nullptr : bias.data(),
                  choices.data());
  });
  return choices;
}

std::vector<int> ExpertsOf(const std::vector<ExpertChoice>& choices) {
  std::vector<int> out;
  for (const ExpertChoice& choice : choices) out.push_back(choice.expert);
  return out;
}

// The choice in double, by sorting. `gap`: how near the closest decision was; 0 stands for ties.
struct Wanted {
  std::vector<int> experts;
  std::vector<double> weights;
  double gap = std::numeric_limits<double>::infinity();
};

// Indexes of the `count` best, and the distance between the last of them and the next.
std::vector<int> Best(const std::vector<double>& values, int count, double* gap) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const double distance = values[order[i]] - values[order[i + 1]];
    if (static_cast<int>(i) + 1 == count && distance > 0) *gap = std::min(*gap, distance);
  }
  order.resize(static_cast<size_t>(count));
  return order;
}

Wanted Reference(const RoutingRule& rule, const std::vector<float>& logits,
                 const std::vector<float>& bias) {
  const size_t n = logits.size();
  std::vector<double> scores(n), ranked(n);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (size_t i = 0; i < n; ++i) {
    const double power = std::exp(static_cast<double>(logits[i]));
    scores[i] = rule.score == ExpertScore::kSigmoid ? power / (1 + power) : power / sum;
    ranked[i] = scores[i] + (bias.empty() ? 0 : static_cast<double>(bias[i]));
  }
  Wanted wanted;
  if (rule.num_groups > 1) {
    const size_t size = n / static_cast<size_t>(rule.num_groups);
    std::vector<double> worth;
    for (size_t first = 0; first < n; first += size) {
      std::vector<double> group(ranked.begin() + first, ranked.begin() + first + size);
      std::sort(group.rbegin(), group.rend());
      worth.push_back(std::accumulate(group.begin(), group.begin() + rule.group_top, 0.0));
    }
    std::vector<double> kept(n, -std::numeric_limits<double>::infinity());
    for (const int group : Best(worth, rule.num_groups_kept, &wanted.gap))
      std::copy_n(ranked.begin() + group * size, size, kept.begin() + group * size);
    ranked = kept;
  }
  wanted.experts = Best(ranked, rule.num_chosen, &wanted.gap);
  std::sort(wanted.experts.begin(), wanted.experts.end());
  double total = 0;
  for (const int expert : wanted.experts) total += scores[expert];
  for (const int expert : wanted.experts)
    wanted.weights.push_back(scores[expert] / (rule.normalise ? total : 1) *
                             static_cast<double>(rule.scale));
  return wanted;
}

std::vector<RoutingRule> Rules() {
  constexpr ExpertScore kSoftmax = ExpertScore::kSoftmax, kSigmoid = ExpertScore::kSigmoid;
  return {
      {.num_experts = 8, .num_chosen = 2, .score = kSoftmax, .normalise = true},
      {.num_experts = 8, .num_chosen = 8, .score = kSoftmax, .normalise = true},
      {.num_experts = 1, .num_chosen = 1, .score = kSoftmax},
      {.num_experts = 64, .num_chosen = 6, .score = kSoftmax, .scale = 1.5f},
      {.num_experts = 160, .num_chosen = 6, .num_groups = 8, .num_groups_kept = 3, .scale = 16},
      {.num_experts = 256,
       .num_chosen = 8,
       .score = kSigmoid,
       .num_groups = 8,
       .num_groups_kept = 4,
       .group_top = 2,
       .normalise = true,
       .scale = 2.5f},
      {.num_experts = 24,
       .num_chosen = 3,
       .score = kSigmoid,
       .num_groups = 12,
       .num_groups_kept = 2,
       .group_top = 2},
      {.num_experts = 21, .num_chosen = 3, .score = kSigmoid, .normalise = true},
      {.num_experts = 4096,
       .num_chosen = 64,
       .score = kSigmoid,
       .num_groups = 64,
       .num_groups_kept = 9,
       .group_top = 64,
       .normalise = true},
  };
}

class RoutingTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, RoutingTest, testing::ValuesIn(IsasOfThisMachine()), IsaTestName);

TEST_P(RoutingTest, ChoosesAsSortedDoublesDo) {
  constexpr uint32_t kSeed = 4711;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  int compared = 0, close = 0;
  for (const RoutingRule& rule : Rules()) {
    for (int round = 0; round < 60; ++round) {
      const auto n = rule.num_experts;
      std::vector<float> logits = reference::Uniform(n, 6, static_cast<uint32_t>(random()));
      std::vector<float> bias;
      if (round % 3 == 1) bias = reference::Uniform(n, 0.5, static_cast<uint32_t>(random()));
      if (round % 3 == 2)  // coarse: many are equal, and the lower index has to win
        for (float& logit : logits) logit = std::round(logit / 3);
      const Wanted wanted = Reference(rule, logits, bias);
      if (wanted.gap < 1e-6 * rule.group_top) {
        ++close;
        continue;
      }
      ++compared;
      const std::vector<ExpertChoice> got = Choose(GetParam(), rule, logits, bias);
      ASSERT_EQ(ExpertsOf(got), wanted.experts) << n << " experts, round " << round;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i].weight, wanted.weights[i], 2e-6 * wanted.weights[i] + 1e-12) << n;
    }
  }
  EXPECT_GT(compared, 20 * close);
}

TEST_P(RoutingTest, TheBiasChoosesButWeighsNothing) {
  const RoutingRule rule = {.num_experts = 4, .num_chosen = 1, .score = ExpertScore::kSigmoid};
  const auto got = Choose(GetParam(), rule, {3, 0, 2, 1}, {0, 0.9f, 0, 0});
  EXPECT_EQ(got[0].expert, 1);
  EXPECT_FLOAT_EQ(got[0].weight, 0.5f);
}

TEST_P(RoutingTest, AGroupIsWorthItsBestScores) {
  // Group 0 has the best expert, group 1 the best pair.
  const std::vector<float> logits = {3, -4, -4, 2, 2, -4, 1, 0, -4};
  RoutingRule rule = {.num_experts = 9, .num_chosen = 2, .num_groups = 3, .num_groups_kept = 1};
  EXPECT_EQ(ExpertsOf(Choose(GetParam(), rule, logits)), (std::vector<int>{0, 1}));
  rule.group_top = 2;
  rule.score = ExpertScore::kSigmoid;
  EXPECT_EQ(ExpertsOf(Choose(GetParam(), rule, logits)), (std::vector<int>{3, 4}));
}

TEST_P(RoutingTest, OfEqualScoresTheLowerIndexWins) {
  for (const RoutingRule& rule : Rules()) {
    std::vector<int> first(static_cast<size_t>(rule.num_chosen));
    std::iota(first.begin(), first.end(), 0);
    EXPECT_EQ(ExpertsOf(Choose(GetParam(), rule, std::vector<float>(rule.num_experts, 0.25f))),
              first)
        << rule.num_experts;
  }
}

TEST_P(RoutingTest, ANanIsNeverBetterThanANumber) {
  for (const ExpertScore score : {ExpertScore::kSoftmax, ExpertScore::kSigmoid}) {
    const RoutingRule rule = {.num_experts = 6, .num_chosen = 2, .score = score};
    EXPECT_EQ(ExpertsOf(Choose(GetParam(), rule, {kNan, -3, kNan, -2, -1, kNan})),
              (std::vector<int>{3, 4}));
    EXPECT_EQ(ExpertsOf(Choose(GetParam(), rule, {1, 1, 1, 1, 1, 1}, {kNan, 0, 0, kNan, 1, 0})),
              (std::vector<int>{1, 4}));
  }
}

TEST_P(RoutingTest, AnyNumbersGiveDistinctExpertsOfTheKeptGroups) {
  constexpr uint32_t kSeed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const float values[] = {kNan, -kNan, kInfinity, -kInfinity, 0,     -0.0f,
                          1,    -1,    3e38f,     -3e38f,     1e-40f};
  const auto pick = [&] { return values[random() % std::size(values)]; };
  for (const RoutingRule& rule : Rules()) {
    for (int round = 0; round < 80; ++round) {
      std::vector<float> logits(static_cast<size_t>(rule.num_experts)), bias;
      const float same = pick(), same_bias = pick();
      for (float& logit : logits) logit = round % 4 == 0 ? same : pick();
      if (round % 2 == 1)
        for (size_t i = 0; i < logits.size(); ++i)
          bias.push_back(round % 4 == 1 ? same_bias : pick());
      const std::vector<int> got = ExpertsOf(Choose(GetParam(), rule, logits, bias));
      std::set<int> groups;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LT(got[i], rule.num_experts);
        ASSERT_GT(got[i], i == 0 ? -1 : got[i - 1]);
        groups.insert(got[i] / (rule.num_experts / rule.num_groups));
      }
      ASSERT_LE(static_cast<int>(groups.size()), rule.num_groups_kept) << rule.num_experts;
    }
  }
}

TEST(RoutingIsaTest, InstructionSetChangesNothing) {
  if (IsasOfThisMachine().size() < 2) GTEST_SKIP() << "this processor has no AVX-512";
  for (const RoutingRule& rule : Rules()) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const auto logits = reference::Uniform(rule.num_experts, 8, seed);
      const auto a = Choose(Isa::kAvx2, rule, logits), b = Choose(Isa::kAvx512, rule, logits);
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])), 0) << rule.num_experts;
    }
  }
}

TEST(RoutingDeathTest, MoreThanTheLimitsIsABug) {
  EXPECT_DEATH(Choose(Isa::kAvx2, {.num_experts = 4097, .num_chosen = 1}, std::vector<float>(4097)),
               "4097");
  EXPECT_DEATH(Choose(Isa::kAvx2, {.num_experts = 80, .num_chosen = 65}, std::vector<float>(80)),
               "65");
  EXPECT_DEATH(Choose(Isa::kAvx2, {.num_experts = 2, .num_chosen = 3}, std::vector<float>(2)),
               "fewer experts than are chosen");
}

}  // namespace
}  // namespace cairn

#include "worker/feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/checkpoint.h"

namespace cairn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// One rank's side of an exchange. Without `inboxes` it keeps what the rank sent and fails, so that
// ranks run one after another: first to send, then again to receive.
class StagedCollective : public Collective {
 public:
  StagedCollective(int rank, int size) : rank_(rank), size_(size), outbox_(int64_t{1} << 20) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int64_t max_message_bytes() const override { return std::ssize(outbox_) * kFloatBytes; }
  std::byte* Outbox() override { return reinterpret_cast<std::byte*>(outbox_.data()); }
  absl::Status AllGatherV(int64_t bytes) override {
    if (inboxes != nullptr) return absl::OkStatus();
    sent.assign(outbox_.begin(), outbox_.begin() + bytes / kFloatBytes);
    return absl::UnavailableError("sent");
  }
  std::span<const std::byte> Inbox(int rank) const override {
    return std::as_bytes(std::span((*inboxes)[rank]));
  }
  absl::Status AllReduceSum(std::span<float>) override { return absl::OkStatus(); }
  void SetTimeout(absl::Duration) override {}

  std::vector<float> sent;
  const std::vector<std::vector<float>>* inboxes = nullptr;

 private:
  const int rank_, size_;
  std::vector<float> outbox_;
};

struct ExpertCase {
  const char* family;
  int num_experts, num_chosen;
};

// Experts whose weights in a sum are normalised soft maxima.
class ExpertNetworkTest : public testing::TestWithParam<ExpertCase> {
 protected:
  static constexpr int kModelDim = 48, kRowFloats = 64;

  void SetUp() override {
    auto checkpoint = Checkpoint::Open(std::string(CAIRN_TEST_DATA) + "/golden/models/" +
                                       GetParam().family + "/f32");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto config = LoadModelConfig(*checkpoint_);
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *std::move(config);
    ASSERT_EQ(config_.experts.num_experts, num_experts());
    ASSERT_EQ(config_.experts.num_chosen, GetParam().num_chosen);
    ASSERT_EQ(config_.model_dim, kModelDim);
  }

  static int num_experts() { return GetParam().num_experts; }

  // Only the experts are cut: eight ranks are more than this model's heads allow.
  ShardPlan PlanOf(int num_ranks) const {
    ShardPlan plan = *MakeShardPlan(config_, 1);
    plan.ranks.resize(num_ranks, plan.ranks[0]);
    for (int rank = 0; rank < num_ranks; ++rank)
      plan.ranks[rank].experts = Split(num_experts(), num_ranks, rank);
    return plan;
  }

  // Rows padded to whole blocks with zeros.
  static std::vector<float> Rows(int num_rows, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-2, 2);
    std::vector<float> out(static_cast<size_t>(num_rows) * kRowFloats);
    for (size_t i = 0; i < out.size(); ++i)
      if (i % kRowFloats < kModelDim) out[i] = uniform(random);
    return out;
  }

  // What a rank makes of target, which stays as it was if the exchange fails.
  std::vector<float> Add(const ShardPlan& plan, int rank, int num_threads, std::vector<float> rows,
                         std::vector<float> target, StagedCollective* collective) const {
    const auto num_rows = static_cast<int64_t>(rows.size()) / kRowFloats;
    auto team = ThreadTeam::Create({.num_threads = num_threads});
    EXPECT_TRUE(team.ok());
    const auto weights =
        LoadRankWeights(*checkpoint_, config_, plan.ranks[rank], **team, [](int64_t, int64_t) {});
    EXPECT_TRUE(weights.ok()) << weights.status();
    RankSums sums(plan, rank, true);
    ExpertNetwork experts(config_, plan, rank, ActivationFormat::kF32, sums);
    EXPECT_TRUE(experts.Allocate(num_rows, kModelDim, num_threads).ok());
    EXPECT_TRUE(
        sums.Allocate(num_rows, kModelDim, experts.sum().tree.scratch_floats(), num_threads).ok());
    sums.SetCollective(collective);
    const Normed normed = {
        .f32 = {ActivationFormat::kF32, reinterpret_cast<std::byte*>(rows.data()),
                kRowFloats / kQuantBlock},
        .quantised = {}};
    (*team)->Run([&](const Context& context) {
      experts.Add(context, weights->threads[context.thread()].layers[0], weights->layers[0], normed,
                  num_rows, target.data());
    });
    EXPECT_EQ(sums.failed(), collective != nullptr && collective->inboxes == nullptr);
    return target;
  }

  std::vector<float> AddAlone(const std::vector<float>& rows, const std::vector<float>& target,
                              int num_threads = 1) const {
    return Add(PlanOf(1), 0, num_threads, rows, target, nullptr);
  }

  double Dot(const std::vector<double>& x, WeightRole role, int expert, int64_t row) const {
    const auto tensor = FindWeight(*checkpoint_, config_, role, 0, expert);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      float weight = 0;
      std::memcpy(&weight, (*tensor)->data.data() + (row * std::ssize(x) + k) * kFloatBytes,
                  sizeof(weight));
      sum += x[k] * static_cast<double>(weight);
    }
    return sum;
  }

  // The experts of a row and their weights, in double.
  std::vector<std::pair<int, double>> ChosenBy(const std::vector<double>& x) const {
    std::vector<std::pair<double, int>> scores;
    double sum = 0;
    for (int e = 0; e < num_experts(); ++e)
      scores.emplace_back(-std::exp(Dot(x, WeightRole::kRouter, 0, e)), e);
    std::sort(scores.begin(), scores.end());
    for (int i = 0; i < GetParam().num_chosen; ++i) sum -= scores[i].first;
    std::vector<std::pair<int, double>> out;
    for (int i = 0; i < GetParam().num_chosen; ++i)
      out.emplace_back(scores[i].second, -scores[i].first / sum);
    return out;
  }

  std::vector<double> DoubleRow(const std::vector<float>& rows, int64_t row) const {
    return {rows.begin() + row * kRowFloats, rows.begin() + row * kRowFloats + kModelDim};
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> out;
  for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
  return out;
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertNetworkTest,
                         testing::Values(ExpertCase{"qwen3_moe", 8, 3},
                                         ExpertCase{"mixtral", 6, 2}),
                         [](const auto& test) { return std::string(test.param.family); });

TEST_P(ExpertNetworkTest, IsTheWeightedSumOfTheChosenExperts) {
  constexpr int kRows = 20;
  const std::vector<float> rows = Rows(kRows, 1);
  const std::vector<float> before(kRows * kModelDim, 0.5f);
  const std::vector<float> got = AddAlone(rows, before, 2);
  for (int row = 0; row < kRows; ++row) {
    const std::vector<double> x = DoubleRow(rows, row);
    std::vector<double> want(kModelDim, 0.5);
    for (const auto& [expert, weight] : ChosenBy(x)) {
      std::vector<double> gated;
      for (int f = 0; f < config_.experts.ffn_dim; ++f) {
        const double gate = Dot(x, WeightRole::kExpertGate, expert, f);
        gated.push_back(gate / (1 + std::exp(-gate)) * Dot(x, WeightRole::kExpertUp, expert, f));
      }
      for (int d = 0; d < kModelDim; ++d)
        want[d] += weight * Dot(gated, WeightRole::kExpertDown, expert, d);
    }
    for (int d = 0; d < kModelDim; ++d)
      ASSERT_NEAR(got[row * kModelDim + d], want[d], 1e-5) << "row " << row << " column " << d;
  }
}

TEST_P(ExpertNetworkTest, AnyNumberOfRanksGivesTheBitsOfOne) {
  constexpr int kRows = 33;
  const std::vector<float> rows = Rows(kRows, 2);
  const std::vector<float> before(kRows * kModelDim, -0.0f);
  const std::vector<uint32_t> want = Bits(AddAlone(rows, before));
  for (int num_ranks = 2; num_ranks <= num_experts(); ++num_ranks) {
    const ShardPlan plan = PlanOf(num_ranks);
    std::vector<std::unique_ptr<StagedCollective>> collectives;
    std::vector<std::vector<float>> sent;
    for (int rank = 0; rank < num_ranks; ++rank) {
      collectives.push_back(std::make_unique<StagedCollective>(rank, num_ranks));
      EXPECT_EQ(Bits(Add(plan, rank, 1, rows, before, collectives[rank].get())), Bits(before));
      sent.push_back(collectives[rank]->sent);
    }
    for (int rank = 0; rank < num_ranks; ++rank) {
      collectives[rank]->inboxes = &sent;
      ASSERT_EQ(Bits(Add(plan, rank, 1 + rank % 2, rows, before, collectives[rank].get())), want)
          << "rank " << rank << " of " << num_ranks;
    }
  }
}

// A zero of either sign comes through a sum with -0 as it is; +0 would turn -0 round.
TEST_P(ExpertNetworkTest, ARankWithNoneOfARowsExpertsSendsMinusZero) {
  constexpr int kRows = 16, kRanks = 5;
  const std::vector<float> rows = Rows(kRows, 3);
  const ShardPlan plan = PlanOf(kRanks);
  int absent = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    StagedCollective collective(rank, kRanks);
    Add(plan, rank, 2, rows, std::vector<float>(kRows * kModelDim), &collective);
    const std::vector<Range> subtrees = OwnSubtrees(num_experts(), 1, plan.ranks[rank].experts);
    ASSERT_EQ(std::ssize(collective.sent), std::ssize(subtrees) * kRows * kModelDim);
    for (size_t s = 0; s < subtrees.size(); ++s) {
      for (int row = 0; row < kRows; ++row) {
        bool takes_part = false;
        for (const auto& [expert, weight] : ChosenBy(DoubleRow(rows, row)))
          takes_part |= subtrees[s].begin <= expert && expert < subtrees[s].end;
        absent += !takes_part;
        const auto first = collective.sent.begin() + (s * kRows + row) * kModelDim;
        const std::vector<uint32_t> bits = Bits({first, first + kModelDim});
        EXPECT_EQ(std::count(bits.begin(), bits.end(), 0x80000000u) == kModelDim, !takes_part)
            << "rank " << rank << " row " << row;
      }
    }
  }
  EXPECT_GT(absent, 20);
}

TEST_P(ExpertNetworkTest, RowsAndThreadsChangeNoBitOfOthers) {
  constexpr int kRows = 600;  // taken in three parts
  const std::vector<float> rows = Rows(kRows, 4);
  const std::vector<float> before(kRows * kModelDim, 1);
  const std::vector<float> want = AddAlone(rows, before);
  EXPECT_EQ(Bits(AddAlone(rows, before, 3)), Bits(want));
  for (const int row : {0, 1, 255, 256, 511, 512, 599}) {
    const std::vector<float> alone =
        AddAlone({rows.begin() + row * kRowFloats, rows.begin() + (row + 1) * kRowFloats},
                 std::vector<float>(kModelDim, 1));
    EXPECT_EQ(Bits(alone),
              Bits({want.begin() + row * kModelDim, want.begin() + (row + 1) * kModelDim}))
        << row;
  }
}

}  // namespace
}  // namespace cairn

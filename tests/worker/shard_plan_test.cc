#include "worker/shard_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/matmul.h"
#include "worker/decoder.h"
#include "worker/sum_tree.h"

namespace cairn {
namespace {

ModelConfig Config(int heads, int kv_heads, int ffn_dim, int vocab) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 16;
  config.ffn_dim = ffn_dim;
  config.vocab_size = vocab;
  config.layers.resize(1);
  return config;
}

// The ranges are contiguous, in order, and together [0, end).
void ExpectCover(const ShardPlan& plan, Range RankShard::*part, int64_t end) {
  int64_t at = 0;
  for (const RankShard& shard : plan.ranks) {
    EXPECT_EQ((shard.*part).begin, at);
    EXPECT_GT((shard.*part).size(), 0);
    at = (shard.*part).end;
  }
  EXPECT_EQ(at, end);
}

// The rank's query heads and KV heads.
using Heads = std::vector<std::pair<Range, Range>>;

Heads HeadsOf(int heads, int kv_heads, int num_ranks) {
  const auto plan = MakeShardPlan(Config(heads, kv_heads, 1536, 49152), num_ranks);
  EXPECT_TRUE(plan.ok()) << plan.status();
  Heads out;
  if (plan.ok())
    for (const RankShard& shard : plan->ranks) out.push_back({shard.query_heads, shard.kv_heads});
  return out;
}

TEST(ShardPlanTest, QueryHeadsAreEvenWhereNoRankNeedsMoreKvHeads) {
  EXPECT_EQ(HeadsOf(9, 3, 2), (Heads{{{0, 5}, {0, 2}}, {{5, 9}, {1, 3}}}));
  EXPECT_EQ(HeadsOf(28, 4, 3), (Heads{{{0, 10}, {0, 2}}, {{10, 19}, {1, 3}}, {{19, 28}, {2, 4}}}));
  EXPECT_EQ(HeadsOf(8, 4, 2), (Heads{{{0, 4}, {0, 2}}, {{4, 8}, {2, 4}}}));
  // Even ones would put four of eight KV heads on the rank in the middle.
  EXPECT_EQ(HeadsOf(32, 8, 3), (Heads{{{0, 12}, {0, 3}}, {{12, 24}, {3, 6}}, {{24, 32}, {6, 8}}}));
  // Or two of three on one of four.
  EXPECT_EQ(HeadsOf(9, 3, 4),
            (Heads{{{0, 3}, {0, 1}}, {{3, 6}, {1, 2}}, {{6, 7}, {2, 3}}, {{7, 9}, {2, 3}}}));
}

TEST(ShardPlanTest, EveryPartIsOwnedExactlyOnceForAnyNumberOfRanks) {
  const struct {
    int heads, kv_heads, ffn_dim, vocab;
  } models[] = {{9, 3, 1536, 49152},    {9, 3, 128, 320}, {4, 2, 160, 320}, {8, 1, 2048, 1000},
                {32, 8, 14336, 128256}, {7, 7, 400, 100}, {12, 12, 50, 333}};
  for (const auto& m : models) {
    const ModelConfig config = Config(m.heads, m.kv_heads, m.ffn_dim, m.vocab);
    for (int size = 1; size <= 16; ++size) {
      const auto plan = MakeShardPlan(config, size);
      if (!plan.ok()) continue;
      ExpectCover(*plan, &RankShard::query_heads, m.heads);
      ExpectCover(*plan, &RankShard::ffn_leaves, plan->num_ffn_leaves());
      ExpectCover(*plan, &RankShard::ffn_blocks, (m.ffn_dim + 31) / 32);
      ExpectCover(*plan, &RankShard::vocab_tiles, (m.vocab + 15) / 16);
      const int group = m.heads / m.kv_heads;
      for (const RankShard& shard : plan->ranks) {
        // The KV heads are those of the query heads.
        EXPECT_EQ(shard.kv_heads.begin, shard.query_heads.begin / group);
        EXPECT_EQ(shard.kv_heads.end, (shard.query_heads.end - 1) / group + 1);
        EXPECT_EQ(shard.skipped_heads(group), shard.query_heads.begin % group);
        EXPECT_LE(shard.largest_group(group), group);
      }
    }
  }
}

ModelConfig ExpertConfig(int num_experts, int shared_ffn_dim) {
  ModelConfig config = Config(16, 16, 96, 1000);
  config.model_dim = 56;
  config.layers = {{}, {.experts = true}};
  config.experts = {
      .num_experts = num_experts, .num_chosen = 2, .ffn_dim = 40, .shared_ffn_dim = shared_ffn_dim};
  return config;
}

// The ranges are contiguous and together [0, end); some may be empty.
void ExpectCoverWithGaps(const ShardPlan& plan, Range RankShard::*part, int64_t end) {
  int64_t at = 0;
  for (const RankShard& shard : plan.ranks) {
    EXPECT_EQ((shard.*part).begin, at);
    EXPECT_GE((shard.*part).size(), 0);
    at = (shard.*part).end;
  }
  EXPECT_EQ(at, end);
}

TEST(ShardPlanTest, ExpertsAndTheNetworkBesideThemMayBeFewerThanTheRanks) {
  for (const int num_experts : {1, 3, 8, 64, 257}) {
    for (const int shared_ffn_dim : {0, 20, 64, 96, 2048}) {
      ModelConfig config = ExpertConfig(num_experts, shared_ffn_dim);
      const auto one = MakeShardPlan(config, 1);
      ASSERT_TRUE(one.ok()) << one.status();
      for (int size = 1; size <= 16; ++size) {
        config.layers[0].experts = size > 3;  // a dense layer of 96 columns has three slices
        const auto plan = MakeShardPlan(config, size);
        ASSERT_TRUE(plan.ok()) << plan.status();
        ExpectCoverWithGaps(*plan, &RankShard::experts, num_experts);
        ExpectCoverWithGaps(*plan, &RankShard::shared_leaves,
                            std::ssize(plan->shared_leaf_begin) - 1);
        ExpectCoverWithGaps(*plan, &RankShard::shared_blocks, (shared_ffn_dim + 31) / 32);
        EXPECT_EQ(plan->shared_leaf_begin, one->shared_leaf_begin);
        EXPECT_EQ(plan->num_ffn_leaves(), size > 3 ? 0 : 3);
        for (const RankShard& shard : plan->ranks) {
          EXPECT_EQ(shard.shared_blocks.begin, plan->shared_leaf_begin[shard.shared_leaves.begin]);
          EXPECT_EQ(shard.shared_blocks.end, plan->shared_leaf_begin[shard.shared_leaves.end]);
        }
      }
    }
  }
  // A rank without experts has none, and adds up none.
  const auto plan = MakeShardPlan(ExpertConfig(2, 0), 3);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->ranks[0].experts.size(), 0);
  EXPECT_TRUE(OwnSubtrees(2, 1, plan->ranks[0].experts).empty());
  EXPECT_TRUE(OwnSubtrees(0, 1, {}).empty());
}

TEST(ShardPlanTest, ADenseLayerLimitsTheRanksByItsSlices) {
  ModelConfig config = ExpertConfig(8, 0);
  EXPECT_TRUE(MakeShardPlan(config, 3).ok());
  const absl::Status status = MakeShardPlan(config, 4).status();
  EXPECT_NE(status.message().find("tp=4, limit=3 (slices of the feed-forward network)"),
            std::string::npos)
      << status;
  config.layers[0].experts = true;
  EXPECT_TRUE(MakeShardPlan(config, 4).ok());
}

TEST(ShardPlanTest, TheLongestMessageHoldsWhatExpertsSend) {
  for (const int num_experts : {8, 60, 257}) {
    ModelConfig config = ExpertConfig(num_experts, 96);
    config.model_dim = 2040;
    config.layers[0].experts = true;
    for (int size = 2; size <= 16; ++size) {
      const auto plan = MakeShardPlan(config, size);
      ASSERT_TRUE(plan.ok());
      for (const int max_rows : {1, 64, 4096}) {
        const int64_t longest = MaxMessageBytes(config, *plan, max_rows, 16);
        for (const RankShard& shard : plan->ranks) {
          const auto sums = [&](int num_leaves, int group, Range own) {
            return static_cast<int64_t>(OwnSubtrees(num_leaves, group, own).size()) * 2048 *
                   static_cast<int64_t>(sizeof(float));
          };
          EXPECT_GE(longest, sums(num_experts, 1, shard.experts) * std::min(max_rows, 256));
          EXPECT_GE(longest, sums(3, 1, shard.shared_leaves) * max_rows);
          EXPECT_GE(longest, sums(16, 1, shard.query_heads) * max_rows);
        }
      }
    }
  }
}

TEST(ShardPlanTest, LeavesDoNotDependOnTheNumberOfRanks) {
  const ModelConfig config = Config(9, 3, 1536, 49152);
  const auto one = MakeShardPlan(config, 1);
  for (int size = 2; size <= 9; ++size) {
    const auto plan = MakeShardPlan(config, size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->head_leaf_begin, one->head_leaf_begin);
    EXPECT_EQ(plan->ffn_leaf_begin, one->ffn_leaf_begin);
  }
}

TEST(ShardPlanTest, MoreRanksThanTheModelAllowsAreRefusedByTheLimit) {
  const auto heads = MakeShardPlan(Config(9, 3, 1536, 49152), 10);
  EXPECT_EQ(heads.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(heads.status().message().find("tp=10, limit=9 (query heads)"), std::string::npos)
      << heads.status();
  EXPECT_FALSE(MakeShardPlan(Config(32, 8, 64, 49152), 3).ok());
  EXPECT_FALSE(MakeShardPlan(Config(32, 8, 1536, 32), 3).ok());
  EXPECT_FALSE(MakeShardPlan(Config(9, 3, 1536, 49152), 0).ok());
  EXPECT_FALSE(MakeShardPlan(Config(9, 3, 1536, 49152), -1).ok());
}

TEST(ShardPlanTest, ACutBetweenKvHeadsSendsOneSumARank) {
  EXPECT_EQ(OwnSubtrees(9, 3, {0, 6}), (std::vector<Range>{{0, 6}}));
  EXPECT_EQ(OwnSubtrees(9, 3, {6, 9}), (std::vector<Range>{{6, 9}}));
}

// A collective whose inboxes are given.
class GivenInboxes : public Collective {
 public:
  explicit GivenInboxes(std::vector<std::vector<float>> inboxes) : inboxes_(std::move(inboxes)) {}
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(inboxes_.size()); }
  int64_t max_message_bytes() const override { return 0; }
  std::byte* Outbox() override { return nullptr; }
  absl::Status AllGatherV(int64_t) override { return absl::OkStatus(); }
  std::span<const std::byte> Inbox(int rank) const override {
    return std::as_bytes(std::span(inboxes_[rank]));
  }
  absl::Status AllReduceSum(std::span<float>) override { return absl::OkStatus(); }
  void SetTimeout(absl::Duration) override {}

 private:
  std::vector<std::vector<float>> inboxes_;
};

float SumOf(const std::vector<float>& leaves, int group, int lo, int hi) {
  if (hi - lo == 1) return leaves[lo];
  const int middle = TreeMiddle(lo, hi, group);
  return SumOf(leaves, group, lo, middle) + SumOf(leaves, group, middle, hi);
}

TEST(SumTreeTest, AnyCutOfTheLeavesGivesTheBitsOfOneOwner) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-1, 1);
  auto team = ThreadTeam::Create({});
  ASSERT_TRUE(team.ok());
  constexpr int64_t kElements = 1040;  // more than a chunk
  for (int num_leaves = 1; num_leaves <= 13; ++num_leaves) {
    std::vector<std::vector<float>> leaves(kElements, std::vector<float>(num_leaves));
    for (auto& element : leaves)
      for (float& leaf : element) leaf = value(random);
    for (int ranks = 1; ranks <= num_leaves + 4; ++ranks) {  // the last of them leave some idle
      const int group = 1 + (num_leaves + ranks) % 4;
      std::vector<Range> cut;
      for (int rank = 0; rank < ranks; ++rank) cut.push_back(Split(num_leaves, ranks, rank));
      const SumTree tree(cut, group);
      std::vector<std::vector<float>> inboxes(ranks);
      for (int rank = 0; rank < ranks; ++rank)
        for (const Range& subtree : tree.subtrees(rank))
          for (int64_t i = 0; i < kElements; ++i)
            inboxes[rank].push_back(SumOf(leaves[i], group, static_cast<int>(subtree.begin),
                                          static_cast<int>(subtree.end)));
      const GivenInboxes collective(inboxes);
      std::vector<float> x(kElements, 0.25f), scratch(tree.scratch_floats());
      (*team)->Run([&](const Context& context) {
        tree.Add(context, collective, kElements, {0, kElements}, scratch.data(), x.data());
      });
      for (int64_t i = 0; i < kElements; ++i)
        ASSERT_EQ(x[i], 0.25f + SumOf(leaves[i], group, 0, num_leaves))
            << num_leaves << " " << ranks;
    }
  }
}

}  // namespace
}  // namespace cairn

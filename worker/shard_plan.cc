#include "worker/shard_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/activations.h"
#include "kernels/matmul.h"

namespace cairn {
namespace {

// A rank's part of n heads: the first ranks take one more.
Range PartOf(int64_t n, int64_t num_ranks, int64_t rank) {
  const int64_t each = n / num_ranks, more = n % num_ranks;
  const int64_t first = rank * each + std::min(rank, more);
  return {first, first + each + (rank < more ? 1 : 0)};
}

// Even numbers of query heads, and the KV heads that those read; false if a rank then has more KV
// heads than if these were divided evenly.
bool CutQueryHeads(const ModelConfig& config, int group, std::vector<RankShard>* ranks) {
  const auto num_ranks = std::ssize(*ranks);
  const int64_t most_kv_heads = PartOf(config.num_kv_heads, num_ranks, 0).size();
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const Range queries = PartOf(config.num_heads, num_ranks, rank);
    const Range kv = {queries.begin / group, (queries.end - 1) / group + 1};
    if (kv.size() > most_kv_heads) return false;
    (*ranks)[rank].query_heads = queries;
    (*ranks)[rank].kv_heads = kv;
  }
  return true;
}

void CutHeads(const ModelConfig& config, ShardPlan* plan) {
  const int num_ranks = static_cast<int>(plan->ranks.size());
  const int group = config.num_heads / config.num_kv_heads;
  if (CutQueryHeads(config, group, &plan->ranks)) return;
  if (num_ranks <= config.num_kv_heads) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Range kv = PartOf(config.num_kv_heads, num_ranks, rank);
      plan->ranks[rank].kv_heads = kv;
      plan->ranks[rank].query_heads = {kv.begin * group, kv.end * group};
    }
    return;
  }
  for (int kv = 0; kv < config.num_kv_heads; ++kv) {
    const Range sharers = Split(num_ranks, config.num_kv_heads, kv);
    for (int64_t rank = sharers.begin; rank < sharers.end; ++rank) {
      const Range queries = Split(group, sharers.size(), rank - sharers.begin);
      plan->ranks[rank].kv_heads = {kv, kv + 1};
      plan->ranks[rank].query_heads = {kv * group + queries.begin, kv * group + queries.end};
    }
  }
}

void OwnSubtreesBelow(int lo, int hi, int group, Range own, std::vector<Range>* out) {
  if (own.begin <= lo && hi <= own.end) {
    out->push_back({lo, hi});
    return;
  }
  if (hi - lo == 1 || own.end <= lo || hi <= own.begin) return;
  const int middle = TreeMiddle(lo, hi, group);
  OwnSubtreesBelow(lo, middle, group, own, out);
  OwnSubtreesBelow(middle, hi, group, own, out);
}

// Where the slices of a feed-forward network begin, in 32-blocks, and where the last one ends.
std::vector<int32_t> LeavesOfFfn(int ffn_dim) {
  const int64_t blocks = BlocksFor(ffn_dim);
  const auto num_leaves = static_cast<int>(std::min<int64_t>(kMaxFfnLeaves, blocks));
  std::vector<int32_t> begin = {0};
  for (int leaf = 1; leaf <= num_leaves; ++leaf)
    begin.push_back(static_cast<int32_t>(blocks * leaf / num_leaves));
  return begin;
}

void CutLeaves(std::span<const int32_t> begin, int num_ranks, int rank, Range* leaves,
               Range* blocks) {
  *leaves = Split(std::ssize(begin) - 1, num_ranks, rank);
  *blocks = {begin[leaves->begin], begin[leaves->end]};
}

}  // namespace

absl::StatusOr<ShardPlan> MakeShardPlan(const ModelConfig& config, int num_ranks) {
  const bool has_dense_layer = std::any_of(config.layers.begin(), config.layers.end(),
                                           [](const LayerConfig& layer) { return !layer.experts; });
  const std::vector<int32_t> ffn_leaves = LeavesOfFfn(has_dense_layer ? config.ffn_dim : 0);
  const int64_t vocab_tiles = (config.vocab_size + kTileRows - 1) / kTileRows;
  const struct {
    const char* what;
    int64_t limit;
  } limits[] = {{"query heads", config.num_heads},
                {"slices of the feed-forward network",
                 has_dense_layer ? std::ssize(ffn_leaves) - 1 : config.num_heads},
                {"tiles of the vocabulary", vocab_tiles}};
  for (const auto& [what, limit] : limits) {
    if (num_ranks < 1 || num_ranks > limit) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor-parallel size out of range for this model: tp=%d, limit=%d (%s)",
                          num_ranks, limit, what));
    }
  }
  ShardPlan plan;
  plan.ranks.resize(num_ranks);
  plan.head_group = config.num_heads / config.num_kv_heads;
  const bool mla = config.attention == AttentionKind::kMla;
  const int64_t head_blocks = BlocksFor(mla ? config.mla.value_dim : config.head_dim);
  for (int head = 0; head <= config.num_heads; ++head)
    plan.head_leaf_begin.push_back(static_cast<int32_t>(head * head_blocks));
  plan.ffn_leaf_begin = ffn_leaves;
  plan.shared_leaf_begin = LeavesOfFfn(config.experts.shared_ffn_dim);
  CutHeads(config, &plan);
  for (int rank = 0; rank < num_ranks; ++rank) {
    RankShard& shard = plan.ranks[rank];
    CutLeaves(plan.ffn_leaf_begin, num_ranks, rank, &shard.ffn_leaves, &shard.ffn_blocks);
    CutLeaves(plan.shared_leaf_begin, num_ranks, rank, &shard.shared_leaves, &shard.shared_blocks);
    shard.experts = Split(config.experts.num_experts, num_ranks, rank);
    shard.vocab_tiles = Split(vocab_tiles, num_ranks, rank);
  }
  return plan;
}

std::vector<Range> OwnSubtrees(int num_leaves, int group, Range own) {
  std::vector<Range> out;
  if (own.size() == 0) return out;
  OwnSubtreesBelow(0, num_leaves, group, own, &out);
  return out;
}

}  // namespace cairn

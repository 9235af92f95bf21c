// How a model is cut among the ranks of a tensor-parallel group, for any number of ranks.
//
// Query heads are divided evenly where no rank then holds more KV heads than if these were divided
// whole; a KV head whose query heads are on two ranks is on both. Else query heads go with their KV
// head; with more ranks than KV heads a KV head is on several ranks, its query heads divided among
// them. The feed-forward network is cut on slices of whole
// 32-blocks, experts are divided whole, the vocabulary on tiles of 16 rows. Sums that cross ranks
// (attention output, feed-forward output, experts) are made of leaves whose cut points do not
// depend on the number of ranks: a query head, a slice, an expert. Each rank owns a contiguous
// range of leaves. A latent vector and what is computed before it are on every rank. Thread: any;
// plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/context.h"
#include "model/model_config.h"

namespace cairn {

// Slices of the feed-forward sum: enough for 12 ranks, few enough that adding them costs little.
inline constexpr int kMaxFfnLeaves = 12;

struct RankShard {
  Range query_heads;                   // of the model; also the leaves of the attention output
  Range kv_heads;                      // that those query heads read
  Range ffn_leaves;                    // leaves of the feed-forward output
  Range ffn_blocks;                    // the same in 32-blocks of ffn columns
  Range experts;                       // also the leaves of their sum; may be empty
  Range shared_leaves, shared_blocks;  // of the network beside the experts; may be empty
  Range vocab_tiles;                   // in tiles of 16 rows of the output matrix

  // With `group` query heads of the model to a KV head: how many of the first KV head's come before
  // this rank's, and how many of one KV head it has at most.
  int skipped_heads(int group) const {
    return static_cast<int>(query_heads.begin - kv_heads.begin * group);
  }
  int largest_group(int group) const {
    return static_cast<int>(std::min<int64_t>(group, query_heads.size()));
  }
};

struct ShardPlan {
  // Leaf i of a sum spans the 32-blocks [begin[i], begin[i + 1]) of its packed K.
  std::vector<int32_t> head_leaf_begin;
  std::vector<int32_t> ffn_leaf_begin, shared_leaf_begin;
  int head_group = 1;  // query heads of a KV head: leaves that a cut seldom divides
  std::vector<RankShard> ranks;

  int num_head_leaves() const { return static_cast<int>(head_leaf_begin.size()) - 1; }
  int num_ffn_leaves() const { return static_cast<int>(ffn_leaf_begin.size()) - 1; }
};

// Errors: InvalidArgument naming the limit if `num_ranks` is below 1 or more than the query heads,
// the slices or the vocabulary allow.
absl::StatusOr<ShardPlan> MakeShardPlan(const ModelConfig& config, int num_ranks);

// The largest whole subtrees of the tree over leaves [0, num_leaves) that lie inside `own`, in
// order: what the owner of those leaves adds up alone.
std::vector<Range> OwnSubtrees(int num_leaves, int group, Range own);

}  // namespace cairn

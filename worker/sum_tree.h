// Sums of row-cut products across ranks in the fixed tree of their leaves.
//
// Rank r sends the sums of its largest whole subtrees, one behind the other; every rank then adds
// the same tree. Whoever owns the leaves, the additions are those of a single rank.
// Thread: any after construction; Add is called by each thread for its own elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "worker/collective.h"

namespace cairn {

class SumTree {
 public:
  // leaves[r]: the leaves of rank r, maybe none; contiguous, in rank order, together
  // [0, num_leaves). `group`: of Leaves in kernels/matmul.h.
  SumTree(std::span<const Range> leaves, int group);

  // What each rank computes and sends, in order.
  std::span<const Range> subtrees(int rank) const { return subtrees_[rank]; }
  int max_subtrees() const;

  // Floats of scratch that Add needs.
  int64_t scratch_floats() const { return depth_ * kChunk; }

  // x[i] += tree sum of the ranks' contributions, for i in `elements`. Each subtree's sum is
  // `message_floats` long in the inbox of its rank.
  void Add(const Context& context, const Collective& collective, int64_t message_floats,
           Range elements, float* scratch, float* x) const;

 private:
  static constexpr int64_t kChunk = 1024;  // elements added at a time: they stay in the L1 cache
  struct Node {
    int rank = -1, index = 0;   // a subtree that a rank sent
    int left = -1, right = -1;  // or the sum of two nodes
  };
  int Build(int lo, int hi, int depth);
  const float* Evaluate(const Context& context, const Collective& collective,
                        int64_t message_floats, Range chunk, int node, int depth,
                        float* scratch) const;

  const int group_;
  std::vector<std::vector<Range>> subtrees_;
  std::vector<Node> nodes_;
  int root_ = -1;
  int64_t depth_ = 1;
};

}  // namespace cairn

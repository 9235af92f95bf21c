#include "worker/sum_tree.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/gated_activation.h"
#include "kernels/matmul.h"
#include "worker/shard_plan.h"

namespace cairn {

SumTree::SumTree(std::span<const Range> leaves, int group) : group_(group) {
  int64_t end = 0;
  for (const Range& own : leaves) {
    CHECK_EQ(own.begin, end);
    end = own.end;
  }
  for (const Range& own : leaves)
    subtrees_.push_back(OwnSubtrees(static_cast<int>(end), group, own));
  if (end > 0) root_ = Build(0, static_cast<int>(end), 1);
}

int SumTree::max_subtrees() const {
  size_t most = 0;
  for (const auto& list : subtrees_) most = std::max(most, list.size());
  return static_cast<int>(most);
}

int SumTree::Build(int lo, int hi, int depth) {
  depth_ = std::max<int64_t>(depth_, depth);
  for (int rank = 0; rank < static_cast<int>(subtrees_.size()); ++rank) {
    const auto& list = subtrees_[rank];
    const auto found = std::find(list.begin(), list.end(), Range{lo, hi});
    if (found == list.end()) continue;
    nodes_.push_back({.rank = rank, .index = static_cast<int>(found - list.begin())});
    return static_cast<int>(nodes_.size()) - 1;
  }
  CHECK(hi - lo > 1) << "a leaf without an owner: " << lo;
  const int middle = TreeMiddle(lo, hi, group_);
  const int left = Build(lo, middle, depth + 1);
  const int right = Build(middle, hi, depth + 1);
  nodes_.push_back({.left = left, .right = right});
  return static_cast<int>(nodes_.size()) - 1;
}

const float* SumTree::Evaluate(const Context& context, const Collective& collective,
                               int64_t message_floats, Range chunk, int index, int depth,
                               float* scratch) const {
  const Node& node = nodes_[index];
  if (node.rank >= 0) {
    const std::span<const std::byte> inbox = collective.Inbox(node.rank);
    return reinterpret_cast<const float*>(inbox.data()) + node.index * message_floats + chunk.begin;
  }
  // The left sum may lie in this depth's scratch, so the right one uses the next depth's.
  float* sum = scratch + depth * kChunk;
  const float* left =
      Evaluate(context, collective, message_floats, chunk, node.left, depth, scratch);
  const float* right =
      Evaluate(context, collective, message_floats, chunk, node.right, depth + 1, scratch);
  AddRows(context, left, right, chunk.size(), sum);
  return sum;
}

void SumTree::Add(const Context& context, const Collective& collective, int64_t message_floats,
                  Range elements, float* scratch, float* x) const {
  if (root_ < 0) return;
  for (int64_t begin = elements.begin; begin < elements.end; begin += kChunk) {
    const Range chunk = {begin, std::min(begin + kChunk, elements.end)};
    const float* sum = Evaluate(context, collective, message_floats, chunk, root_, 0, scratch);
    AddRows(context, x + begin, sum, chunk.size(), x + begin);
  }
}

}  // namespace cairn

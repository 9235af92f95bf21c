#include "worker/rank_sums.h"

#include <vector>

#include "kernels/gated_activation.h"

namespace cairn {
namespace {

std::vector<Range> LeavesOf(const ShardPlan& plan, Range RankShard::*leaves) {
  std::vector<Range> out;
  for (const RankShard& shard : plan.ranks) out.push_back(shard.*leaves);
  return out;
}

}  // namespace

RowCutSum::RowCutSum(const ShardPlan& plan, Range RankShard::*leaves,
                     std::span<const int32_t> begin, int leaf_group, int rank)
    : tree(LeavesOf(plan, leaves), leaf_group),
      leaf_begin(begin),
      group(leaf_group),
      own(plan.ranks[rank].*leaves) {}

absl::Status RankSums::Allocate(int64_t max_rows, int64_t row_stride, int64_t scratch_floats,
                                int num_threads) {
  constexpr int64_t kFloatBytes = sizeof(float);
  row_stride_ = row_stride;
  const int64_t partial_floats = single_rank_ || exact_ ? 0 : max_rows * row_stride;
  ASSIGN_OR_RETURN(partial_, HostBuffer::Allocate(partial_floats * kFloatBytes, "activations"));
  scratch_.resize(num_threads);
  for (HostBuffer& scratch : scratch_) {
    ASSIGN_OR_RETURN(scratch, HostBuffer::Allocate(scratch_floats * kFloatBytes, "scratch"));
  }
  return absl::OkStatus();
}

void RankSums::SetCollective(Collective* collective) {
  collective_ = collective;
  failed_ = false;
  failure_ = absl::OkStatus();
}

bool RankSums::Exchange(const Context& context, int64_t bytes) {
  context.Sync();
  if (context.thread() == 0) {
    failure_ = collective_->AllGatherV(bytes);
    if (!failure_.ok()) failed_ = true;
  }
  context.Sync();
  return !failed();
}

Range RankSums::Mine(const Context& context, int64_t elements) {
  const Range units = context.Share(elements / kTileRows);
  return {units.begin * kTileRows, units.end * kTileRows};
}

void RankSums::AddProduct(const Context& context, const PackedMatrix& weights,
                          const Activations& activations, const RowCutSum& sum, int64_t num_rows,
                          float* target) {
  MatmulArgs args = {.weights = weights,
                     .x = activations,
                     .first_block = 0,
                     .num_rows = num_rows,
                     .out = target,
                     .out_stride = row_stride_,
                     .accumulate = true,
                     .leaves = {}};
  const int lo = static_cast<int>(sum.own.begin), hi = static_cast<int>(sum.own.end);
  if (single_rank_) {
    if (exact_) args.leaves = {sum.leaf_begin, lo, hi, sum.group};
    Matmul(context, args);
    context.Sync();
    return;
  }
  args.accumulate = false;
  const int64_t elements = num_rows * row_stride_;
  if (!exact_) return AddUnordered(context, args, elements, target);
  args.out = Outbox();
  for (const Range& subtree : sum.tree.subtrees(rank_)) {
    args.leaves = {sum.leaf_begin, static_cast<int>(subtree.begin), static_cast<int>(subtree.end),
                   sum.group};
    args.first_block = sum.leaf_begin[subtree.begin] - sum.leaf_begin[lo];
    Matmul(context, args);
    args.out += elements;
  }
  AddOutbox(context, sum, num_rows, target);
}

void RankSums::AddOutbox(const Context& context, const RowCutSum& sum, int64_t num_rows,
                         float* target) {
  const int64_t elements = num_rows * row_stride_;
  const auto num_subtrees = static_cast<int64_t>(sum.tree.subtrees(rank_).size());
  if (!Exchange(context, num_subtrees * elements * static_cast<int64_t>(sizeof(float)))) return;
  sum.tree.Add(context, *collective_, elements, Mine(context, elements),
               scratch_[context.thread()].as<float>(), target);
  context.Sync();
}

void RankSums::AddUnordered(const Context& context, MatmulArgs args, int64_t elements,
                            float* target) {
  const Range mine = Mine(context, elements);
  float* partial = partial_.as<float>();
  args.out = partial;
  Matmul(context, args);
  context.Sync();
  if (context.thread() == 0) {
    failure_ = collective_->AllReduceSum({partial, static_cast<size_t>(elements)});
    if (!failure_.ok()) failed_ = true;
  }
  context.Sync();
  AddRows(context, target + mine.begin, partial + mine.begin, mine.size(), target + mine.begin);
  context.Sync();
}

}  // namespace cairn

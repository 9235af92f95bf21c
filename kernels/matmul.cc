#include "kernels/matmul.h"

#include <cstring>

#include "base/log.h"
#include "kernels/cpu_kernels.h"
#include "kernels/packed_block.h"

namespace cairn {
namespace {

// Counts for each leaf of [lo, hi) the subtrees of TreeMiddle that end with it.
void CountMerges(int lo, int hi, int group, uint8_t* merges) {
  if (hi - lo == 1) return;
  const int middle = TreeMiddle(lo, hi, group);
  CountMerges(lo, middle, group, merges);
  CountMerges(middle, hi, group, merges + (middle - lo));
  ++merges[hi - 1 - lo];
}

}  // namespace

void Matmul(const Context& context, const MatmulArgs& args) {
  const PackedMatrix& weights = args.weights;
  CHECK(args.x.format == ActivationFormatFor(weights.dtype, args.x.format))
      << Info(weights.dtype).name << " weights with integer activations";
  if (args.num_rows == 0 || weights.num_tiles == 0) return;
  CHECK_GE(args.first_block, 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(weights.data) % 64, 0u);
  CHECK(weights.num_blocks <= INT32_MAX) << weights.num_blocks;

  const int32_t one_leaf[2] = {0, static_cast<int32_t>(weights.num_blocks)};
  MatmulCall call = {
      .dtype = weights.dtype,
      .format = args.x.format,
      .terms = NumTerms(args.x.format),
      .weights = weights.data,
      .num_tiles = weights.num_tiles,
      .tile_bytes = PackedTileBytes(weights.dtype, weights.num_blocks),
      .table_bytes = TableBytes(weights.dtype, weights.num_blocks),
      .x = args.x.data,
      .x_blocks = args.x.num_blocks,
      .first_block = args.first_block,
      .num_rows = args.num_rows,
      .out = args.out + weights.first_tile * kTileRows,
      .out_stride = args.out_stride,
      .accumulate = args.accumulate,
      .leaf_begin = one_leaf,
      .leaf_lo = 0,
      .leaf_hi = 1,
      .merges = nullptr,
  };
  if (!args.leaves.begin.empty()) {
    const Leaves& leaves = args.leaves;
    CHECK(0 <= leaves.lo && leaves.lo < leaves.hi &&
          leaves.hi < static_cast<int>(leaves.begin.size()))
        << leaves.lo << ".." << leaves.hi << " of " << leaves.begin.size();
    call.leaf_begin = leaves.begin.data();
    call.leaf_lo = leaves.lo;
    call.leaf_hi = leaves.hi;
  }
  const int64_t end =
      args.first_block + call.leaf_begin[call.leaf_hi] - call.leaf_begin[call.leaf_lo];
  CHECK(end <= weights.num_blocks && end <= args.x.num_blocks)
      << "blocks end at " << end << ": weights " << weights.num_blocks << ", activations "
      << args.x.num_blocks;
  const int num_leaves = call.leaf_hi - call.leaf_lo;
  CHECK_LE(num_leaves, kMaxLeaves);
  uint8_t merges[kMaxLeaves];
  std::memset(merges, 0, num_leaves);
  CountMerges(call.leaf_lo, call.leaf_hi, args.leaves.group, merges);
  call.merges = merges;
  context.cpu().matmul(call);
}

void Product(const Context& context, const PackedMatrix& weights, const Activations& x,
             int64_t num_rows, float* out, int64_t out_stride, bool accumulate) {
  Matmul(context, {.weights = weights,
                   .x = x,
                   .num_rows = num_rows,
                   .out = out,
                   .out_stride = out_stride,
                   .accumulate = accumulate});
}

}  // namespace cairn

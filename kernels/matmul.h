// The matrix product of a step: out[t][n] = sum over k of weights[n][k] * activations[t][k].
//
// Weights stay in the type of their file, repacked once at load into lane order: a tile is 16
// output rows, a block of it 32 k, so SIMD lanes are output rows and no sum crosses lanes.
//
// Order of additions, for each output element, whatever the number of rows, the thread, the strip
// or the instruction set: blocks of a leaf in ascending k; leaves in the fixed tree of TreeMiddle.
// Quantised weights with int8 activations: an exact integer dot product per 32-block, then
// acc = fma(weight_scale * x_scale, dot, acc), then for types with a minimum
// acc = fma(min, x_scaled_sum, acc). With int16 activations, so for each of the two terms, and the
// sums of both are added leaf by leaf. The weight_scale and the min of kQ4_K and kQ5_K are products
// of an f16 and 6 bits, which float32 holds exactly. float32 activations: w = dequantised weight
// (one rounding as in kernels/dequantise.h, kF8E4M3: of scale * float8), acc = fma(w, x, acc),
// k ascending.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/activations.h"
#include "kernels/context.h"

namespace cairn {

inline constexpr int kTileRows = 16;     // output rows of a weight tile: one per SIMD lane
inline constexpr int kMaxLeaves = 4096;  // of a product: the most query heads a model may have

// Bytes of one tile of `num_blocks` 32-blocks in the packed form of `dtype`, a multiple of 64.
int64_t PackedTileBytes(DType dtype, int64_t num_blocks);

// Whether rows of `dtype` can be packed in these segments. Types without scales always can. Other
// segments start at multiples of 32; those of kQ4_K and kQ5_K, which share scales of 256
// values, also follow one another without a gap, from any multiple of 32 on. The caller has the
// values packed as kF32 otherwise.
bool CanPack(DType dtype, std::span<const Range> segments);

// Packs one tile. rows[i] points at the first block of output row i in file order, or is null for
// a row of zeros (past the end of the matrix). Element ranges `segments` of each row are packed one
// behind the other, each padded with zeros to a multiple of 32; CanPack(dtype, segments).
struct PackTileArgs {
  DType dtype = DType::kF32;
  const std::byte* rows[kTileRows] = {};
  // kF8E4M3: of each row, one for every kFloat8Block of its columns.
  const float* scales[kTileRows] = {};
  std::span<const Range> segments = {};
  std::byte* out = nullptr;  // PackedTileBytes(dtype, sum of BlocksFor(segment)) bytes, 64-aligned
};
void PackTile(const PackTileArgs& args);

// One thread's tiles of a packed matrix. Does not own its bytes.
struct PackedMatrix {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;  // [num_tiles] packed tiles of num_blocks, 64-aligned
  int64_t first_tile = 0;           // in the rank's matrix
  int64_t num_tiles = 0;
  int64_t num_blocks = 0;  // along K
};

// The part [lo, hi) of a sum's leaves; leaf i spans blocks [begin[i], begin[i + 1]) of K, counted
// from the first leaf of the whole sum. Leaves come in groups of `group` that a cut seldom divides
// (the query heads of a KV head): the tree is one over groups, and inside each group one of leaves.
struct Leaves {
  // Ascending, one more than there are leaves in the whole sum; at most kMaxLeaves of them.
  std::span<const int32_t> begin = {};
  int lo = 0, hi = 0;
  int group = 1;
};

// The fixed tree over leaves [lo, hi): the left part is [lo, middle). A cut of the leaves among any
// number of ranks splits the tree into whole subtrees, which their owner adds up alone.
constexpr int TreeMiddle(int lo, int hi, int group = 1) {
  const int num_leaves = hi - lo;
  if (num_leaves <= group) return lo + (num_leaves + 1) / 2;
  const int num_groups = (num_leaves + group - 1) / group;
  return lo + (num_groups + 1) / 2 * group;
}

struct MatmulArgs {
  PackedMatrix weights = {};
  Activations x = {};  // [num_rows][x.num_blocks], format ActivationFormatFor(weights.dtype, ..)
  int64_t first_block = 0;  // of the packed tile and of x alike: where leaf `leaves.lo` starts
  int64_t num_rows = 0;
  // [num_rows][out_stride]; element (t, n) of the rank's matrix at t * out_stride + n.
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;  // out += instead of out =
  Leaves leaves = {};       // begin empty: one leaf of all weights.num_blocks blocks
};

// Columns of out that a product with n output rows writes: whole tiles.
constexpr int64_t PaddedColumns(int64_t n) { return (n + kTileRows - 1) / kTileRows * kTileRows; }

// Computes this thread's columns: [16 * first_tile, 16 * (first_tile + num_tiles)) of out. Writes
// whole tiles, so out has room up to a multiple of 16 columns. Does not Sync.
void Matmul(const Context& context, const MatmulArgs& args);

// The same over all of K as one leaf: out = (or +=) the product.
void Product(const Context& context, const PackedMatrix& weights, const Activations& x,
             int64_t num_rows, float* out, int64_t out_stride, bool accumulate = false);

}  // namespace cairn

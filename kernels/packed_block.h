// Layout of one packed weight tile (matmul.h) and of its blocks: 16 output rows x 32 k each.
//
// Plain types:  [32 k][16 rows].
// kF8E4M3:      [32 k][16 rows] bytes; then 16 float32 scales times 256, which is what the unpacked
//               bytes lack (Float8 in simd_*.h). The scale of a row with a NaN among its 32 values
//               is NaN: all sums that the row takes part in are NaN either way.
// kQ4_0, kQ4_1: [4 groups g][16 rows][4 j] bytes, low nibbles are k = 4g+j, high ones 16+4g+j; then
//               16 f16 scales; then, kQ4_1, 16 f16 minimums.
// kQ5_0, kQ5_1: the low 4 bits as kQ4_0; then the fifth bits as [16 rows][4 j] bytes, bit 4u+f is
//               k = 8f+4u+j; then scales and minimums as kQ4_1.
// kQ8_0:        [8][16][4] int8, k = 4g+j; then 16 f16 scales.
// kQ6_K:        the low 4 bits as kQ4_0; then the upper 2 bits as [2 u][16 rows][4 j] bytes, bits
//               2f, 2f+1 are k = 8f+4u+j; then [2 halves of 16 k][16 rows] int8 scales; then 16 f16
//               scales of the scales.
// kQ4_K, kQ5_K: the quants as kQ4_0 and kQ5_0; then 16 bytes of scales, 16 of minimums. What these
//               are multiplied by serves up to 8 blocks and stands in a table in front of the
//               tile's blocks: an opening line, then for each super-block of the file that the tile
//               touches a line of 16 f16 scales and 16 f16 minimums, negated. The opening says how
//               many blocks of the first super-block lie in front of the tile's first: the phase.
//               Block b has line (phase + b) / 8.
// Every block is as large as in the file, but kQ6_K's, whose f16 scale serves 32 values, not 256,
// and those of kQ4_K and kQ5_K, whose scales and minimums have 8 bits, not 6.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/matmul.h"

namespace cairn {

inline constexpr int kHighBitsAt = 256;         // kQ6_K and the types of 5 bits
inline constexpr int kSubScalesAt = 256 + 128;  // kQ6_K

// Scales of kF8E4M3 from 2^120 on are infinite in the packed form.
inline constexpr float kFloat8ScaleFactor = 256;

constexpr bool HasFifthBit(DType dtype) {
  return dtype == DType::kQ5_0 || dtype == DType::kQ5_1 || dtype == DType::kQ5_K;
}
// Whether scales stand in a table in front of the blocks.
constexpr bool HasScaleTable(DType dtype) { return dtype == DType::kQ4_K || dtype == DType::kQ5_K; }
constexpr bool HasMinimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || HasScaleTable(dtype);
}

// Offset of a quantised type's scales: f16, or bytes where there is a table.
constexpr int ScalesAt(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kQ8_0:
      return 512;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
      return 256;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return kHighBitsAt + 4 * kTileRows;
    case DType::kQ6_K:
      return kSubScalesAt + 2 * kTileRows;
    default:
      return 0;
  }
}
constexpr int ScaleBytes(DType dtype) { return HasScaleTable(dtype) ? 1 : 2; }
// Offset of the minimums, as wide as the scales.
constexpr int MinimumsAt(DType dtype) { return ScalesAt(dtype) + ScaleBytes(dtype) * kTileRows; }

constexpr int PackedBlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kQuantBlock * kTileRows * 4;
    case DType::kF16:
    case DType::kBF16:
      return kQuantBlock * kTileRows * 2;
    case DType::kF8E4M3:
      return ScalesAt(dtype) + kTileRows * 4;
    default:
      return HasMinimum(dtype) ? MinimumsAt(dtype) + ScaleBytes(dtype) * kTileRows
                               : MinimumsAt(dtype);
  }
}

// The table. Its lines are 64 bytes and so aligned, so that a pointer which goes on by kTableStep
// with every block names a block's line by its upper bits.
inline constexpr int kTableLineBytes = 64;
inline constexpr int kTableMinimumsAt = 2 * kTileRows;  // in a line
inline constexpr int kSuperBlocks = 8;                  // 32-blocks of a super-block
inline constexpr int kTableStep = kTableLineBytes / kSuperBlocks;
static_assert(2 * kTableMinimumsAt == kTableLineBytes);

// The opening line holds the phase, an int32. With the worst phase, n blocks touch (n + 14) / 8
// super-blocks.
constexpr int64_t TableBytes(DType dtype, int64_t num_blocks) {
  if (!HasScaleTable(dtype)) return 0;
  return kTableLineBytes * (1 + (num_blocks + 2 * (kSuperBlocks - 1)) / kSuperBlocks);
}

}  // namespace cairn

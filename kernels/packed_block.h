// Layout of one block of a packed weight tile: 16 output rows x 32 k (matmul.h).
//
// Plain types:  [32 k][16 rows].
// kQ4_0, kQ4_1: [4 groups g][16 rows][4 j] bytes, low nibbles are k = 4g+j, high ones 16+4g+j; then
//               16 f16 scales; then, kQ4_1, 16 f16 minimums.
// kQ8_0:        [8][16][4] int8, k = 4g+j; then 16 f16 scales.
// kQ6_K:        the low 4 bits as kQ4_0; then the upper 2 bits as [2 u][16 rows][4 j] bytes, bits
//               2f, 2f+1 are k = 8f+4u+j; then [2 halves of 16 k][16 rows] int8 scales; then 16 f16
//               scales of the scales.
// Every block is as large as in the file, but kQ6_K's, whose f16 scale serves 32 values, not 256.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/matmul.h"

namespace cairn {

inline constexpr int kHighBitsAt = 256;         // kQ6_K
inline constexpr int kSubScalesAt = 256 + 128;  // kQ6_K

// Offset of the f16 scales of a quantised type.
constexpr int ScalesAt(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return 512;
    case DType::kQ4_0:
    case DType::kQ4_1:
      return 256;
    case DType::kQ6_K:
      return kSubScalesAt + 2 * kTileRows;
    default:
      return 0;
  }
}
inline constexpr int kMinimumsAt = 256 + 2 * kTileRows;  // kQ4_1

constexpr int PackedBlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kQuantBlock * kTileRows * 4;
    case DType::kF16:
    case DType::kBF16:
      return kQuantBlock * kTileRows * 2;
    case DType::kQ4_1:
      return kMinimumsAt + 2 * kTileRows;
    default:
      return ScalesAt(dtype) + 2 * kTileRows;
  }
}

}  // namespace cairn

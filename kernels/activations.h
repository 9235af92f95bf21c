// Rows of activations as matmul reads them: blocks of 32 along K, float32, or 8 or 16 bits with a
// scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "kernels/context.h"

namespace cairn {

inline constexpr int kQuantBlock = 32;  // values that share a scale, along K

// kInt16: the sum of two kInt8 terms, a value's and that of what the first leaves of it. For models
// whose blocks hold values too far apart for 8 bits.
enum class ActivationFormat : uint8_t { kF32, kInt8, kInt16 };

constexpr std::string_view ActivationName(ActivationFormat format) {
  constexpr std::string_view kNames[] = {"f32", "int8", "int16"};
  return kNames[static_cast<int>(format)];
}

// Rows of ActivationBlocks that a row of the format is made of.
constexpr int NumTerms(ActivationFormat format) {
  return format == ActivationFormat::kInt16 ? 2 : 1;
}

// 32 activations quantised to 8 bits: value = scale * q, |q| <= 127, scale = max|value| / 127,
// rounded to nearest, ties to even. A NaN or an infinity among them makes the scale one.
struct ActivationBlock {
  int8_t values[kQuantBlock];
  float scale;
  float scaled_sum;  // scale * sum(values): the factor of the weights' minimum
  int32_t sum;       // sum(values): corrects dot products of shifted weights
  int32_t low_sum;   // sum(values[0, 16)): the same where 16 weights share a scale
};
static_assert(sizeof(ActivationBlock) == 48);

// The block `offset` bytes behind the one at `x`. Always inlined: nothing to share between the
// instruction sets.
[[gnu::always_inline]] inline const ActivationBlock& BlockAt(const std::byte* x, int64_t offset) {
  return *reinterpret_cast<const ActivationBlock*>(x + offset);
}

// Where blocks of one row go. Plain, for code of all instruction sets.
struct ActivationSlot {
  ActivationFormat format = ActivationFormat::kF32;
  std::byte* data = nullptr;
  int64_t term_bytes = 0;  // from a block of the first term to that of the second
};

// Rows of num_blocks blocks each. kF32: 32 floats a block; kInt8: an ActivationBlock; kInt16: the
// ActivationBlocks of the first term, then those of the second. Values past the end of a logical
// shard (a head, an FFN slice) inside its last block are zero: quantisation groups never cross a
// logical shard.
struct Activations {
  ActivationFormat format = ActivationFormat::kF32;
  std::byte* data = nullptr;  // 64-byte aligned
  int64_t num_blocks = 0;     // per row

  static constexpr int64_t BlockBytes(ActivationFormat format) {
    return format == ActivationFormat::kF32 ? kQuantBlock * sizeof(float) : sizeof(ActivationBlock);
  }
  // Of a row of num_blocks blocks.
  static constexpr int64_t RowBytes(ActivationFormat format, int64_t num_blocks) {
    return num_blocks * BlockBytes(format) * NumTerms(format);
  }
  int64_t row_bytes() const { return RowBytes(format, num_blocks); }
  std::byte* row(int64_t index) const { return data + index * row_bytes(); }
  // Rows from `first_row` on, each from `block` on.
  Activations From(int64_t first_row, int64_t block = 0) const {
    return {format, row(first_row) + block * BlockBytes(format), num_blocks};
  }
  ActivationSlot Slot(int64_t row_index, int64_t block) const {
    return {format, From(row_index, block).data, num_blocks * BlockBytes(format)};
  }
};

// What the activations of a product with weights of `weights` are when the user asked for `wanted`:
// integers only ever meet quantised weights.
inline ActivationFormat ActivationFormatFor(DType weights, ActivationFormat wanted) {
  return Info(weights).quantised ? wanted : ActivationFormat::kF32;
}

// Blocks that n values of one logical shard take.
constexpr int64_t BlocksFor(int64_t n) { return (n + kQuantBlock - 1) / kQuantBlock; }

// Writes n values of one logical shard as BlocksFor(n) blocks from `out` on. Thread: any.
void StoreActivations(const CpuKernels& cpu, const float* values, int64_t n,
                      const ActivationSlot& out);

}  // namespace cairn

// Element types of tensors on disk and in memory, and the sizes of their blocks.
//
// Quantised types store rows in blocks of block_elements values that share scales; the byte format
// of each is that of the GGUF specification (ggml-quants). kF8E4M3 has its scales apart (the OCP
// specification of 8-bit floats). All little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cairn {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ6_K,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kF8E4M3
};
inline constexpr int kNumDTypes = 12;

// Rows and columns that share a float32 scale in a matrix of kF8E4M3, which comes with scales
// [ceil(rows / kFloat8Block)][ceil(columns / kFloat8Block)]. Value = scale * float8; the float8 has
// a sign, 4 bits of exponent with bias 7, 3 of fraction, no infinity, and a NaN of all ones.
inline constexpr int kFloat8Block = 128;

struct DTypeInfo {
  std::string_view name;  // "F32", "Q4_1", ...
  int block_elements;     // values per block; 1 for plain types
  int block_bytes;        // bytes per block
  bool quantised;
};

const DTypeInfo& Info(DType dtype);
// The type of that name, if there is one here.
std::optional<DType> FindDType(std::string_view name);

// Bytes of a row of `elements` values, which must be a multiple of block_elements.
int64_t RowBytes(DType dtype, int64_t elements);

}  // namespace cairn

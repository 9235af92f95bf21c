// Element types of tensors on disk and in memory, and the sizes of their blocks.
//
// Quantised types store rows in blocks of block_elements values that share scales; the byte format
// of each is that of the GGUF specification (ggml-quants). All little-endian.
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
  kQ5_K
};
inline constexpr int kNumDTypes = 11;

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

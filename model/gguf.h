// The GGUF format, versions 2 and 3, little-endian: header, typed key-values, tensor table, data.
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/metadata.h"

namespace cairn {

inline constexpr int64_t kMaxMetadataEntries = 1 << 16;
inline constexpr int64_t kMaxMetadataKeyBytes = (1 << 16) - 1;
inline constexpr int64_t kMaxMetadataStringBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxMetadataArrayElements = int64_t{1} << 27;
inline constexpr int kMaxMetadataArrayDepth = 4;
inline constexpr int kMaxGgufRank = 4;
inline constexpr int64_t kDefaultGgufAlignment = 32;

struct GgufContents {
  Metadata metadata;
  std::vector<Tensor> tensors;  // in the order of the file; names are unique
};

// Whether the bytes start like a GGUF file of any version.
bool IsGguf(std::span<const std::byte> file);

// Views in the result point into `file`.
// Errors: InvalidArgument naming the field (or key, or tensor), what was declared and what is
// there.
absl::StatusOr<GgufContents> ParseGguf(std::span<const std::byte> file);

}  // namespace cairn

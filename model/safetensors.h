// The safetensors format: a JSON header of names, types, shapes and byte ranges, then the data.
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"

namespace cairn {

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

// Whether the bytes start like a safetensors file: a length, then a JSON object.
bool IsSafetensors(std::span<const std::byte> file);

// Tensors in the order of their data; views in the result point into `file`. As the format asks,
// the byte ranges must cover the data without holes or overlaps.
// Errors: InvalidArgument naming the field or tensor, what was declared and what is there.
absl::StatusOr<std::vector<Tensor>> ParseSafetensors(std::span<const std::byte> file);

// Which shard holds which tensor.
struct ShardIndex {
  std::vector<std::string> files;  // plain names without folders, sorted, each once
  struct Entry {
    std::string tensor;
    int file_index = 0;
  };
  std::vector<Entry> entries;  // sorted by tensor
};

// Errors: InvalidArgument if it is no index, or a file name could lead out of the folder.
absl::StatusOr<ShardIndex> ParseShardIndex(const nlohmann::json& index);

}  // namespace cairn

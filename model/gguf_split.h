// A GGUF model divided over files: name-00001-of-00003.gguf and so on, each a GGUF file of its own.
//
// The first part has the model's key-values and perhaps no tensor; every part says which it is, of
// how many, and how many tensors the whole model has; none but the first says which model that is,
// so a part of another model with the same tensors cannot be told. Used by checkpoint.h. Thread:
// any. Source: gguf-split of llama.cpp and the writer of gguf-py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/metadata.h"

namespace cairn {

struct GgufSplit {
  int64_t number = 0;       // split.no, from 0
  int64_t count = 1;        // split.count, at most kMaxShards
  int64_t num_tensors = 0;  // split.tensors.count, of all parts together
};

// What a file says about its model's parts; unset for a whole model.
// Errors: InvalidArgument naming the key, its value and the limit.
absl::StatusOr<std::optional<GgufSplit>> ReadGgufSplit(const Metadata& metadata);

// The path of part `number`, given that of the part that `split` describes.
// Errors: InvalidArgument if that file's name does not fit its number and count.
absl::StatusOr<std::string> GgufPartPath(const std::string& path, const GgufSplit& split,
                                         int64_t number);

// Whether a file can be part `number` of the model whose first part has `first` as metadata and
// `split` as its place. Errors: InvalidArgument naming the key and both values.
absl::Status CheckGgufPart(const Metadata& first, const GgufSplit& split, const Metadata& part,
                           int64_t number);

}  // namespace cairn

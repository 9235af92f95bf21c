// What is in a model's files, for people and for scripts.
// Thread: any.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cairn {

enum class InspectFormat { kText, kJson };

// Opens the files (see Checkpoint::Open) and lists metadata, tensors and sizes; ends with a
// newline. Files that are sound but cannot be run (an unknown architecture, a missing weight, a
// type without kernels) are listed too, with the reason as "problem". The JSON is one object: path,
// format, files [{path, bytes}], metadata or config, tensors
// [{name, dtype, shape, bytes, supported}], num_tensors, tensor_bytes, model (null if there is a
// problem), problem (null if there is none).
// Errors: those of Checkpoint::Open.
absl::StatusOr<std::string> InspectModel(const std::string& path, InspectFormat format);

}  // namespace cairn

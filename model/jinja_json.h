// JSON in and out of templates.
// Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "model/jinja_value.h"

namespace cairn {

inline constexpr int64_t kMaxVariablesBytes = int64_t{32} << 20;
inline constexpr int kMaxVariablesDepth = 64;

// A value all of whose texts are content. Objects keep the order of their members; of a member
// that is there twice the last counts, as in Python.
// Errors: InvalidArgument if it is too long, too deep, or not JSON.
absl::StatusOr<JinjaValue> ParseJinjaJson(std::string_view json);

}  // namespace cairn

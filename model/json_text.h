// JSON from files nobody vouches for: bounded in size and depth, each key once, no exceptions.
// Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace cairn {

struct JsonLimits {
  int64_t max_bytes = int64_t{16} << 20;
  int max_depth = 64;  // of arrays and objects in one another
};

// Errors: InvalidArgument if the text is too long, too deep, not JSON (with the byte where it stops
// being that), or has a key twice in one object (readers disagree about which of the two counts).
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits);

// The same from a file; the path is put before the message.
// Errors: also those of MappedFile::Open.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits);

// A value in an error message: its text on one line, cut if it is long.
std::string ShortJson(const nlohmann::json& value);

}  // namespace cairn

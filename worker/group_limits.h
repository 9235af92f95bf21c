// What every back end of Collective demands of a group, and the one order in which all add.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cairn {

inline constexpr int kMaxGroupSize = 64;
// Enough for the head of a broadcast.
inline constexpr int64_t kMinMessageBytes = 64;
inline constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
// The longest reason of a failure that ranks pass on to each other.
inline constexpr size_t kMaxReasonBytes = 256;

// Errors: InvalidArgument naming the field, its value and its limit.
absl::Status CheckGroup(int rank, int size, int64_t max_message_bytes);

// A reason that came from another process: cut to kMaxReasonBytes at the first NUL, and anything
// but printable ASCII replaced, so that it is fit for a log.
std::string CleanReason(std::string_view reason);

// out[i] = parts[0][i] + parts[1][i] + ..., added in this order. `out` may be one of the parts.
void SumInRankOrder(std::span<const float* const> parts, size_t count, float* out);

}  // namespace cairn

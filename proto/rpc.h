// Where absl::Status meets gRPC's, and nowhere else.
//
// The codes are the same numbers. Messages are cut to kMaxStatusMessageBytes, not inside a
// character: a status travels in HTTP/2 trailers, which are limited. Thread: any.
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"

namespace cairn {

inline constexpr size_t kMaxStatusMessageBytes = 2048;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace cairn

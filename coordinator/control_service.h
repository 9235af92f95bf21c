// The workers' way in: the Attach stream, opened by a hello under the cluster secret.
//
// Before both sides are proven nothing but fixed-size byte strings is looked at, and a stranger
// costs one of kMaxHalfOpenAttaches places for at most kHelloTimeout. Afterwards frames are decoded
// and handed to the cluster loop.
// Thread: gRPC's.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "base/secret.h"
#include "coordinator/cluster_loop.h"
#include "coordinator/grpc_server.h"

namespace cairn {

inline constexpr int kMaxHalfOpenAttaches = 64;
inline constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
// Messages to one worker that may wait.
inline constexpr int kMaxQueuedControlMessages = 8192;

// `loop` and `secret` outlive the service.
ServiceHandle NewControlService(ClusterLoop* loop, const ClusterSecret* secret);

}  // namespace cairn

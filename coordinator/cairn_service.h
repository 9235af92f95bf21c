// The public gRPC services: decoding calls, encoding answers, and nothing else.
//
// Thread: gRPC's; the work is done by the text workers and the cluster loop.
#pragma once

#include <functional>
#include <memory>

#include "base/secret.h"
#include "coordinator/cluster_loop.h"
#include "coordinator/grpc_server.h"
#include "coordinator/served_model.h"
#include "coordinator/text_workers.h"

namespace cairn {

// Deltas that may wait for a slow reader before its request is ended.
inline constexpr int kMaxQueuedDeltas = 8192;  // seconds of a small model; under 1 MiB

// All must outlive the services.
struct FrontDoor {
  const ServedModel* model = nullptr;
  ClusterLoop* loop = nullptr;
  TextWorkers* text = nullptr;
  const ClusterSecret* secret = nullptr;
  std::function<void()> drain;  // asked for over the wire, by someone who knows the secret
};

ServiceHandle NewCairnService(const FrontDoor& door);
ServiceHandle NewAdminService(const FrontDoor& door);

}  // namespace cairn

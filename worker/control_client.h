// A worker's way to the coordinator: dials it until it answers, proves the cluster secret both
// ways, and then carries messages; when the stream breaks it dials again, with a growing pause.
//
// Thread: any. Callbacks come from the client's own threads and must not block.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/secret.h"
#include "base/status.h"
#include "proto/control.h"

namespace cairn {

// One proven stream. A new one is made each time the worker attaches; what is sent on one that has
// ended is dropped.
class ControlConnection {
 public:
  virtual ~ControlConnection() = default;
  // Never blocks. Too much waiting ends the connection.
  virtual void Send(WorkerMessage message) = 0;
  // Ends it; on_detached follows.
  virtual void Close() = 0;
};

class ControlClient {
 public:
  struct Options {
    std::string coordinator;  // host:port
    absl::Duration connect_timeout = absl::Seconds(5);
    absl::Duration hello_timeout = absl::Seconds(5);
    absl::Duration min_backoff = absl::Milliseconds(100);
    absl::Duration max_backoff = absl::Seconds(2);
    int32_t max_queued_messages = 1 << 16;
  };
  struct Callbacks {
    // The hello is done; messages follow on_message until on_detached.
    std::function<void(std::shared_ptr<ControlConnection>)> on_attached;
    std::function<void(CoordinatorMessage)> on_message;
    std::function<void(absl::Status)> on_detached;
    // An attempt failed; told once for each new reason.
    std::function<void(const absl::Status&)> on_cannot_attach;
  };
  // Starts to dial. `secret` outlives the client.
  static std::unique_ptr<ControlClient> Start(const Options& options, const ClusterSecret* secret,
                                              Callbacks callbacks);
  // Sends what waits, within a second, then ends the connection and joins the threads.
  virtual ~ControlClient() = default;
};

}  // namespace cairn

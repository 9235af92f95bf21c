// The coordinator's one port: public services, the workers' control stream, health and reflection.
//
// Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace grpc {
class Service;
}

namespace cairn {

// A gRPC service, owned where gRPC's headers are not seen.
struct DeleteService {
  void operator()(grpc::Service* service) const;
};
using ServiceHandle = std::unique_ptr<grpc::Service, DeleteService>;

class GrpcServer {
 public:
  struct Options {
    std::string address = "127.0.0.1:7070";  // host:port, port 0 picks one
    bool insecure = false;  // allows an address that is not loopback, without encryption
    // After it a connection that has not begun to speak HTTP/2 is closed.
    absl::Duration opening_timeout = absl::Seconds(10);
  };
  // Health answers at once: not serving. `services` outlive the server.
  // Errors: InvalidArgument for an address that is no loopback one without `insecure`;
  // Unavailable if the address is taken.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const Options& options, const std::vector<grpc::Service*>& services);
  virtual ~GrpcServer() = default;  // As Shutdown(0).

  virtual int port() const = 0;
  // What the health service says for "" and "cairn.v1.Cairn".
  virtual void SetServing(bool serving) = 0;
  // Ends all calls, at the latest after `limit`. Idempotent.
  virtual void Shutdown(absl::Duration limit) = 0;
};

}  // namespace cairn

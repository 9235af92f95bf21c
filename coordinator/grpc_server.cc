#include "coordinator/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/network_address.h"

namespace cairn {
namespace {

// A connection whose other end is stopped or gone is closed after about the sum of these.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// Workers ping more often than gRPC allows by default.
constexpr int kMinClientPingMs = 1'000;

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(std::unique_ptr<grpc::Server> server, int port)
      : server_(std::move(server)), port_(port) {}
  ~GrpcServerImpl() override { Shutdown(absl::ZeroDuration()); }

  int port() const override { return port_; }
  void SetServing(bool serving) override {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus("cairn.v1.Cairn", serving);
  }
  void Shutdown(absl::Duration limit) override {
    server_->Shutdown(absl::ToChronoTime(absl::Now() + limit));
  }

 private:
  const std::unique_ptr<grpc::Server> server_;
  const int port_;
};

absl::Status CheckAddress(const GrpcServer::Options& options) {
  // gRPC takes a port beyond 65535 modulo 65536.
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(options.address, 0));
  const std::string& host = parsed.host;
  if (options.insecure || host == "localhost" || IsLoopback(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("listening on ", options.address,
                   " would be open to the network without encryption: use a loopback address, or "
                   "--insecure if the network is trusted"));
}

}  // namespace

void DeleteService::operator()(grpc::Service* service) const { delete service; }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const Options& options, const std::vector<grpc::Service*>& services) {
  RETURN_IF_ERROR(CheckAddress(options));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinClientPingMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.opening_timeout)));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.address, ": is the port taken?"));
  }
  auto result = std::make_unique<GrpcServerImpl>(std::move(server), port);
  result->SetServing(false);
  return result;
}

}  // namespace cairn

#include "proto/rpc.h"

#include <cstdint>
#include <string>

namespace cairn {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().data(), status.message().size());
  if (message.size() > kMaxStatusMessageBytes) {
    size_t end = kMaxStatusMessageBytes;
    while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xC0) == 0x80) --end;
    message.resize(end);
    message += " ...";
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), message);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace cairn

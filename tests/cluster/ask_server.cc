// Asks a gRPC server what any client may ask that has nobody's .proto: by reflection which services
// it has, and whether one of them is healthy.
//
// usage: ask_server services ENDPOINT           prints one name a line
//        ask_server health ENDPOINT SERVICE     prints SERVING or NOT_SERVING
// The messages are written and read by hand: their generated code is not installed with gRPC.
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace cairn {
namespace {

using google::protobuf::io::CodedInputStream;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
// ServerReflectionRequest{list_services: "*"}.
constexpr char kListRequest[] = "\x3a\x01*";
// Fields of length-delimited type: ServerReflectionResponse.list_services_response,
// ListServiceResponse.service, ServiceResponse.name.
constexpr uint32_t kListTag = 6 << 3 | 2, kServiceTag = 1 << 3 | 2, kNameTag = 1 << 3 | 2;

// The contents of all fields with `tag` in a message that has length-delimited fields only.
std::vector<std::string> Fields(const std::string& message, uint32_t tag) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  std::vector<std::string> found;
  while (const uint32_t next = in.ReadTag()) {
    uint32_t size = 0;
    std::string content;
    if ((next & 7) != 2 || !in.ReadVarint32(&size)) break;
    if (!in.ReadString(&content, static_cast<int>(size))) break;
    if (next == tag) found.push_back(content);
  }
  return found;
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// Sends one message and takes the first that comes back; a stream as well as a simple call.
grpc::Status Call(const std::string& endpoint, const char* method, const std::string& request,
                  std::string* response) {
  grpc::GenericStub stub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto succeeds = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  const grpc::Slice bytes(request);
  grpc::ByteBuffer answer;
  call->StartCall(nullptr);
  bool ok = succeeds();
  if (ok) call->WriteLast(grpc::ByteBuffer(&bytes, 1), grpc::WriteOptions(), nullptr);
  ok = ok && succeeds();
  if (ok) call->Read(&answer, nullptr);
  ok = ok && succeeds();
  grpc::Status status;
  call->Finish(&status, nullptr);
  succeeds();
  *response = ToString(answer);
  if (status.ok() && !ok) return grpc::Status(grpc::StatusCode::UNKNOWN, "no answer");
  return status;
}

int Report(const grpc::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  return 1;
}

int ListServices(const std::string& endpoint) {
  std::string response;
  const grpc::Status status = Call(endpoint, kReflection, kListRequest, &response);
  for (const std::string& list : Fields(response, kListTag)) {
    for (const std::string& service : Fields(list, kServiceTag)) {
      for (const std::string& name : Fields(service, kNameTag)) std::printf("%s\n", name.c_str());
    }
  }
  return Report(status);
}

int CheckHealth(const std::string& endpoint, const std::string& service) {
  // HealthCheckRequest{service: ...} and HealthCheckResponse{status: 1 (serving)}.
  const std::string request = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  std::string response;
  const grpc::Status status = Call(endpoint, kHealth, request, &response);
  if (status.ok()) std::printf("%s\n", response == "\x08\x01" ? "SERVING" : "NOT_SERVING");
  return Report(status);
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "services" && argc == 3) return cairn::ListServices(argv[2]);
  if (what == "health" && argc == 4) return cairn::CheckHealth(argv[2], argv[3]);
  std::fprintf(stderr, "usage: ask_server services ENDPOINT | health ENDPOINT SERVICE\n");
  return 2;
}

// Asks a gRPC server by reflection which services it has, as any client without our .proto would.
//
// usage: list_services ENDPOINT
// Prints one name a line. The reflection messages are written and read by hand: their generated
// code is not installed with gRPC.
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

constexpr char kMethod[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// ServerReflectionRequest{list_services: "*"}.
constexpr char kRequest[] = "\x3a\x01*";
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

// Waits for the one operation under way; whether it succeeded.
bool Next(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue->Next(&tag, &ok) && ok;
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

int Main(const std::string& endpoint) {
  grpc::GenericStub stub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, kMethod, &queue);
  const grpc::Slice request(kRequest, sizeof kRequest - 1);
  grpc::ByteBuffer response;
  call->StartCall(nullptr);
  bool ok = Next(&queue);
  if (ok) call->WriteLast(grpc::ByteBuffer(&request, 1), grpc::WriteOptions(), nullptr);
  ok = ok && Next(&queue);
  if (ok) call->Read(&response, nullptr);
  ok = ok && Next(&queue);
  grpc::Status status;
  call->Finish(&status, nullptr);
  Next(&queue);
  if (!ok || !status.ok()) {
    std::fprintf(stderr, "no reflection: %s\n", status.error_message().c_str());
    return 1;
  }
  for (const std::string& list : Fields(ToString(response), kListTag)) {
    for (const std::string& service : Fields(list, kServiceTag)) {
      for (const std::string& name : Fields(service, kNameTag)) std::printf("%s\n", name.c_str());
    }
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc == 2) return cairn::Main(argv[1]);
  std::fprintf(stderr, "usage: list_services ENDPOINT\n");
  return 2;
}

// The control stream as strangers see it, on a real port.
#include "coordinator/control_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>

#include "absl/strings/str_cat.h"
#include "base/bounded_queue.h"
#include "base/unique_handle.h"
#include "cairn/v1/internal.grpc.pb.h"
#include "coordinator/grpc_server.h"
#include "proto/control_hello.h"
#include "tests/coordinator/cluster_driver.h"
#include "tests/coordinator/tiny_model.h"
#include "worker/control_client.h"

namespace cairn {
namespace {

using testing::HasSubstr;
using Stream = grpc::ClientReaderWriter<v1::Frame, v1::Frame>;

struct OpenStream {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<Stream> stream;
};

class ControlServiceTest : public testing::Test {
 protected:
  ControlServiceTest()
      : model_(TinyModel()),
        secret_(ClusterSecret::Random()),
        loop_(
            {.cluster = TestClusterOptions(1, 2)}, model_.get(), [](bool) {}, [] {}),
        service_(NewControlService(&loop_, &secret_)) {
    auto server = GrpcServer::Start({.address = "127.0.0.1:0"}, {service_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = absl::StrCat("127.0.0.1:", server_->port());
    stub_ = v1::Control::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }

  OpenStream Open() {
    OpenStream open;
    open.context = std::make_unique<grpc::ClientContext>();
    open.context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    open.stream = stub_->Attach(open.context.get());
    return open;
  }

  // Sends frames, then reads until the server ends the stream.
  grpc::Status EndOf(const std::vector<v1::Frame>& frames) {
    const OpenStream open = Open();
    for (const v1::Frame& frame : frames) open.stream->Write(frame);
    v1::Frame answer;
    while (open.stream->Read(&answer)) {
    }
    return open.stream->Finish();
  }

  static v1::Frame HelloFrame(const std::string& bytes) {
    v1::Frame frame;
    frame.set_hello(bytes);
    return frame;
  }
  static v1::Frame PayloadFrame(const std::string& bytes) {
    v1::Frame frame;
    frame.set_payload(bytes);
    return frame;
  }

  // A stream on which both sides are proven.
  OpenStream Proven() {
    OpenStream open = Open();
    ControlDialer dialer(&secret_);
    v1::Frame frame = HelloFrame(dialer.Open());
    EXPECT_TRUE(open.stream->Write(frame));
    EXPECT_TRUE(open.stream->Read(&frame));
    const auto proof = dialer.Answer(frame.hello());
    EXPECT_TRUE(proof.ok()) << proof.status();
    EXPECT_TRUE(open.stream->Write(HelloFrame(*proof)));
    return open;
  }

  size_t NumMembers() {
    std::promise<size_t> members;
    EXPECT_TRUE(loop_
                    .AskStatus([&](const CoordinatorStatus& status) {
                      size_t count = status.cluster.spares.size();
                      for (const GroupStatus& group : status.cluster.groups) {
                        for (const RankStatus& rank : group.ranks) count += rank.missing ? 0 : 1;
                      }
                      members.set_value(count);
                    })
                    .ok());
    return members.get_future().get();
  }
  bool ReachesMembers(size_t wanted) {
    for (int i = 0; i < 400; ++i) {
      if (NumMembers() == wanted) return true;
      absl::SleepFor(absl::Milliseconds(25));
    }
    return false;
  }

  const std::unique_ptr<ServedModel> model_;
  const ClusterSecret secret_;
  ClusterLoop loop_;
  const ServiceHandle service_;
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::unique_ptr<v1::Control::Stub> stub_;
};

TEST_F(ControlServiceTest, ParsesNothingButAHelloFromAStranger) {
  const std::string registration = EncodeWorkerMessage(ClusterDriver::Info(1));
  ControlDialer dialer(&secret_);
  for (const std::vector<v1::Frame>& frames : std::vector<std::vector<v1::Frame>>{
           {PayloadFrame(registration)},
           {HelloFrame(dialer.Open()), PayloadFrame(registration)},
           {v1::Frame()},
           {HelloFrame("")},
           {HelloFrame(std::string(40, 'x'))},
           {HelloFrame(std::string(3 << 20, 'x'))},
           {HelloFrame(dialer.Open()), HelloFrame(std::string(32, 'x'))},
           {HelloFrame(dialer.Open()), HelloFrame(dialer.Open())}}) {
    EXPECT_EQ(EndOf(frames).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(NumMembers(), 0u);
}

TEST_F(ControlServiceTest, RefusesAFrameThatIsTooLong) {
  EXPECT_EQ(EndOf({HelloFrame(std::string(5 << 20, 'x'))}).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(NumMembers(), 0u);
}

TEST_F(ControlServiceTest, ADamagedMessageCostsItsSenderTheStream) {
  for (const std::string& payload :
       {std::string("\xff\xff\xff\xff"), std::string(), std::string(1000, '\x12'),
        EncodeWorkerMessage(HeartbeatMessage()), EncodeWorkerMessage(LoadingMessage{9, 3})}) {
    const OpenStream open = Proven();
    EXPECT_TRUE(open.stream->Write(PayloadFrame(payload)));
    v1::Frame answer;
    EXPECT_FALSE(open.stream->Read(&answer));
    EXPECT_EQ(open.stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(NumMembers(), 0u);
}

TEST_F(ControlServiceTest, AMemberThatSendsRubbishLaterIsLost) {
  const OpenStream open = Proven();
  EXPECT_TRUE(open.stream->Write(PayloadFrame(EncodeWorkerMessage(ClusterDriver::Info(1)))));
  EXPECT_TRUE(ReachesMembers(1));
  EXPECT_TRUE(open.stream->Write(PayloadFrame(EncodeWorkerMessage(ClusterDriver::Info(1)))));
  v1::Frame answer;
  while (open.stream->Read(&answer)) {
  }
  EXPECT_THAT(open.stream->Finish().error_message(), HasSubstr("Register came twice"));
  EXPECT_TRUE(ReachesMembers(0));
}

TEST_F(ControlServiceTest, LosesAMemberWhoseStreamBreaks) {
  {
    const OpenStream open = Proven();
    EXPECT_TRUE(open.stream->Write(PayloadFrame(EncodeWorkerMessage(ClusterDriver::Info(1)))));
    EXPECT_TRUE(ReachesMembers(1));
    open.context->TryCancel();
    open.stream->Finish();
  }
  EXPECT_TRUE(ReachesMembers(0));
}

TEST_F(ControlServiceTest, BoundsConnectionsWithoutAProof) {
  std::vector<OpenStream> silent;
  for (int i = 0; i < kMaxHalfOpenAttaches + 40; ++i) silent.push_back(Open());
  int refused = 0;
  // Those beyond the bound are refused at once; which ones depends on the order of arrival.
  std::vector<std::future<grpc::StatusCode>> ends;
  for (OpenStream& open : silent) {
    ends.push_back(std::async(std::launch::async, [&open] {
      v1::Frame answer;
      while (open.stream->Read(&answer)) {
      }
      return open.stream->Finish().error_code();
    }));
  }
  for (auto& end : ends) {
    const grpc::StatusCode code = end.get();
    EXPECT_TRUE(code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::CANCELLED)
        << code;
    refused += code == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  EXPECT_GE(refused, 40);
  // All places are free again.
  const OpenStream open = Proven();
  EXPECT_TRUE(open.stream->Write(PayloadFrame(EncodeWorkerMessage(ClusterDriver::Info(1)))));
  EXPECT_TRUE(ReachesMembers(1));
}

TEST_F(ControlServiceTest, ServesTheWorkersOwnClient) {
  BoundedQueue<std::shared_ptr<ControlConnection>> attached(4);
  BoundedQueue<CoordinatorMessage> messages(64);
  BoundedQueue<std::string> detached(4);
  auto client = ControlClient::Start(
      {.coordinator = address_}, &secret_,
      {.on_attached =
           [&](std::shared_ptr<ControlConnection> connection) {
             EXPECT_TRUE(attached.TryPush(std::move(connection)));
           },
       .on_message =
           [&](CoordinatorMessage message) { (void)messages.TryPush(std::move(message)); },
       .on_detached = [&](const absl::Status& cause) { (void)detached.TryPush(cause.ToString()); },
       .on_cannot_attach = [](const absl::Status& status) { ADD_FAILURE() << status; }});
  const auto connection = attached.Pop(absl::Seconds(20));
  ASSERT_TRUE(connection.has_value());
  (*connection)->Send(ClusterDriver::Info(1));
  EXPECT_TRUE(ReachesMembers(1));
  const auto ping = messages.Pop(absl::Seconds(20));
  ASSERT_TRUE(ping.has_value());
  EXPECT_TRUE(std::holds_alternative<PingMessage>(*ping));
  // A broken stream is dialled anew.
  (*connection)->Close();
  EXPECT_TRUE(detached.Pop(absl::Seconds(20)).has_value());
  EXPECT_TRUE(attached.Pop(absl::Seconds(20)).has_value());
  client.reset();
  EXPECT_TRUE(ReachesMembers(0));
}

TEST_F(ControlServiceTest, TellsAWorkerWithAnotherSecretWhy) {
  const ClusterSecret other = ClusterSecret::Random();
  BoundedQueue<std::string> causes(16);
  const auto client = ControlClient::Start(
      {.coordinator = address_}, &other,
      {.on_attached = [](std::shared_ptr<ControlConnection>) { ADD_FAILURE() << "attached"; },
       .on_message = [](CoordinatorMessage) {},
       .on_detached = [](const absl::Status&) {},
       .on_cannot_attach =
           [&](const absl::Status& status) { (void)causes.TryPush(status.ToString()); }});
  const auto cause = causes.Pop(absl::Seconds(20));
  ASSERT_TRUE(cause.has_value());
  EXPECT_THAT(*cause, HasSubstr("does not know this cluster's secret"));
}

// Otherwise strangers hold the process's descriptors for as long as they like.
TEST_F(ControlServiceTest, AConnectionThatSaysNothingIsClosed) {
  const auto server =
      GrpcServer::Start({.address = "127.0.0.1:0", .opening_timeout = absl::Milliseconds(300)}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const UniqueFd connection(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  // The server's own settings may come first; then the end, not this limit.
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char buffer[1024];
  ssize_t size = 1;
  while (size > 0) size = recv(connection.get(), buffer, sizeof(buffer), 0);
  EXPECT_TRUE(size == 0 || errno == ECONNRESET) << strerror(errno);
}

TEST_F(ControlServiceTest, ListensOnWholeAddressesAndBeyondLoopbackOnlyWhenInsecure) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.1.2.3:0", "example.org:0"}) {
    const auto server = GrpcServer::Start({.address = address}, {});
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("--insecure")) << address;
  }
  // gRPC would listen on port 34463, or say itself what it does not understand.
  for (const char* address : {"127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:-5", "localhost:x",
                              "localhost", ":1", ""}) {
    const auto server = GrpcServer::Start({.address = address}, {});
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("host:port")) << address;
  }
  EXPECT_TRUE(GrpcServer::Start({.address = "0.0.0.0:0", .insecure = true}, {}).ok());
  EXPECT_EQ(GrpcServer::Start({.address = address_}, {}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cairn

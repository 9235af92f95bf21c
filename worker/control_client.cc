#include "worker/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bounded_queue.h"
#include "base/log.h"
#include "cairn/v1/internal.grpc.pb.h"
#include "proto/control_hello.h"
#include "proto/rpc.h"

namespace cairn {
namespace {

constexpr int kKeepaliveMs = 3'000;
constexpr int kKeepaliveTimeoutMs = 4'000;
constexpr size_t kMaxBatchedTokens = 256;
constexpr absl::Duration kConnectSlice = absl::Milliseconds(50);

class Connection final : public ControlConnection {
 public:
  explicit Connection(int32_t max_queued) : outgoing_(max_queued) {}

  void Send(WorkerMessage message) override {
    if (outgoing_.TryPush(std::move(message)) || outgoing_.drained()) return;
    LOG(WARNING) << "control.overflows queued=" << outgoing_.size();
    Close();
  }
  void Close() override {
    outgoing_.Close();
    context_.TryCancel();
  }
  // Lets the writer finish what waits, then half-closes the stream.
  void CloseAfterSending() { outgoing_.Close(); }

  void Open(v1::Control::Stub* stub) { stream_ = stub->Attach(&context_); }

  absl::Status SayHello(const ClusterSecret* secret) {
    ControlDialer dialer(secret);
    v1::Frame frame;
    frame.set_hello(dialer.Open());
    if (!stream_->Write(frame) || !stream_->Read(&frame)) return Finish();
    ASSIGN_OR_RETURN(std::string proof, dialer.Answer(frame.hello()));
    frame.Clear();
    frame.set_hello(std::move(proof));
    if (!stream_->Write(frame)) return Finish();
    return absl::OkStatus();
  }

  // Until the stream ends. Errors: why it ended, always.
  absl::Status ReadAll(const std::function<void(CoordinatorMessage)>& on_message) {
    v1::Frame frame;
    while (stream_->Read(&frame)) {
      absl::StatusOr<CoordinatorMessage> message = DecodeCoordinatorMessage(frame.payload());
      if (!message.ok()) return message.status();
      on_message(*std::move(message));
    }
    return absl::OkStatus();
  }

  // On a thread of its own, until the queue is closed or the stream broken.
  void WriteAll() {
    bool works = true;
    while (works && !outgoing_.drained()) {
      std::deque<WorkerMessage> messages = outgoing_.PopAll(absl::Seconds(1));
      while (works && !messages.empty()) {
        v1::Frame frame;
        frame.set_payload(EncodeWorkerMessage(TakeBatch(&messages)));
        works = stream_->Write(frame);
      }
    }
    outgoing_.Close();
    if (works) stream_->WritesDone();
  }

  absl::Status Finish() {
    absl::Status status = FromGrpc(stream_->Finish());
    if (status.ok()) status = absl::UnavailableError("the coordinator closed the stream");
    return status;
  }

 private:
  // The first message, with all token messages that directly follow merged into it.
  static WorkerMessage TakeBatch(std::deque<WorkerMessage>* messages) {
    WorkerMessage first = std::move(messages->front());
    messages->pop_front();
    auto* tokens = std::get_if<TokensMessage>(&first);
    while (tokens != nullptr && !messages->empty() && tokens->events.size() < kMaxBatchedTokens) {
      auto* next = std::get_if<TokensMessage>(&messages->front());
      if (next == nullptr) break;
      std::move(next->events.begin(), next->events.end(), std::back_inserter(tokens->events));
      messages->pop_front();
    }
    return first;
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Frame, v1::Frame>> stream_;
  BoundedQueue<WorkerMessage> outgoing_;
};

class ControlClientImpl final : public ControlClient {
 public:
  ControlClientImpl(const Options& options, const ClusterSecret* secret, Callbacks callbacks)
      : options_(options), secret_(secret), callbacks_(std::move(callbacks)) {
    watch_ = std::thread([this] { WatchHello(); });
    dial_ = std::thread([this] { DialForEver(); });
  }

  ~ControlClientImpl() override {
    ending_.store(true);
    stop_dialling_.Close();
    if (const std::shared_ptr<Connection> connection = connection_.load()) {
      connection->CloseAfterSending();
      const absl::Time deadline = absl::Now() + absl::Seconds(1);
      while (absl::Now() < deadline && connection_.load() != nullptr) {
        absl::SleepFor(absl::Milliseconds(5));
      }
      connection->Close();
    }
    dial_.join();
    stop_watching_.Close();
    watch_.join();
  }

 private:
  void DialForEver() {
    absl::Duration backoff = options_.min_backoff;
    std::string last_error;
    while (!ending_.load()) {
      const absl::Status status = Dial(&backoff);
      if (!status.ok() && status.ToString() != last_error) {
        last_error = status.ToString();
        callbacks_.on_cannot_attach(status);
      }
      if (status.ok()) last_error.clear();
      if (ending_.load()) return;
      stop_dialling_.Pop(backoff);  // a pause that ends when the client does
      backoff = std::min(backoff * 2, options_.max_backoff);
    }
  }

  // One connection from its first to its last message. Errors: why there was none.
  absl::Status Dial(absl::Duration* backoff) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
        options_.coordinator, grpc::InsecureChannelCredentials(), arguments);
    RETURN_IF_ERROR(WaitForConnected(channel.get()));
    const std::unique_ptr<v1::Control::Stub> stub = v1::Control::NewStub(channel);
    const auto connection = std::make_shared<Connection>(options_.max_queued_messages);
    connection_.store(connection);
    hello_deadline_ns_.store(absl::ToUnixNanos(absl::Now() + options_.hello_timeout));
    connection->Open(stub.get());
    const absl::Status hello = connection->SayHello(secret_);
    hello_deadline_ns_.store(0);
    if (!hello.ok() || ending_.load()) {
      connection->Close();
      connection_.store(nullptr);
      return hello;
    }
    *backoff = options_.min_backoff;
    callbacks_.on_attached(connection);
    std::thread writer([&] { connection->WriteAll(); });
    const absl::Status decoded = connection->ReadAll(callbacks_.on_message);
    // The stream has ended, and why is still to be read: only our own refusal cancels it.
    decoded.ok() ? connection->CloseAfterSending() : connection->Close();
    writer.join();
    const absl::Status finished = connection->Finish();
    connection_.store(nullptr);
    callbacks_.on_detached(decoded.ok() ? finished : decoded);
    return absl::OkStatus();
  }

  // In slices, so that the end of the client is not waited for.
  absl::Status WaitForConnected(grpc::Channel* channel) {
    const absl::Time deadline = absl::Now() + options_.connect_timeout;
    while (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kConnectSlice))) {
      if (ending_.load() || absl::Now() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat("no coordinator answers at ", options_.coordinator));
      }
    }
    return absl::OkStatus();
  }

  // A coordinator that accepts and says nothing is given up.
  void WatchHello() {
    while (!stop_watching_.drained()) {
      stop_watching_.Pop(absl::Milliseconds(200));
      const int64_t deadline = hello_deadline_ns_.load();
      const std::shared_ptr<Connection> connection = connection_.load();
      if (deadline != 0 && absl::ToUnixNanos(absl::Now()) > deadline && connection != nullptr) {
        connection->Close();
      }
    }
  }

  const Options options_;
  const ClusterSecret* const secret_;
  const Callbacks callbacks_;
  std::atomic<bool> ending_{false};
  std::atomic<int64_t> hello_deadline_ns_{0};  // 0: no hello is awaited
  // Shared with whoever sends: the connection outlives its stream.
  std::atomic<std::shared_ptr<Connection>> connection_;
  BoundedQueue<int> stop_dialling_{1}, stop_watching_{1};
  std::thread watch_, dial_;
};

}  // namespace

std::unique_ptr<ControlClient> ControlClient::Start(const Options& options,
                                                    const ClusterSecret* secret,
                                                    Callbacks callbacks) {
  return std::make_unique<ControlClientImpl>(options, secret, std::move(callbacks));
}

}  // namespace cairn

#include "coordinator/control_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "cairn/v1/internal.grpc.pb.h"
#include "proto/control_hello.h"
#include "proto/rpc.h"
#include "proto/stream_queue.h"

namespace cairn {
namespace {

// One worker's stream. It keeps itself alive until gRPC is done with it; the loop may hold it
// longer. Reads are handled one at a time.
class AttachReactor final : public grpc::ServerBidiReactor<v1::Frame, v1::Frame>,
                            public MemberStream,
                            public std::enable_shared_from_this<AttachReactor> {
 public:
  using Queue = StreamQueue<v1::Frame>;

  static AttachReactor* Create(grpc::CallbackServerContext* context, ClusterLoop* loop,
                               const ClusterSecret* secret, std::atomic<int>* num_half_open) {
    std::shared_ptr<AttachReactor> reactor(new AttachReactor(context, loop, secret, num_half_open));
    reactor->self_ = reactor;
    reactor->Open();
    return reactor.get();
  }

  bool Send(const CoordinatorMessage& message) override {
    v1::Frame frame;
    frame.set_payload(EncodeCoordinatorMessage(message));
    const Queue::Next next = queue_.Add(std::move(frame));
    if (next.act == Queue::Act::kFull) return false;
    Do(next);
    return true;
  }
  void Close(const absl::Status& cause) override {
    closed_.store(true);
    if (cause.ok()) return Do(queue_.End(grpc::Status::OK));
    // What waits is not worth waiting for; a stopped worker would never take it.
    Do(queue_.Abort(ToGrpc(cause)));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::UnavailableError("its connection closed"));
    if (const absl::Status status = HandleFrame(); !status.ok()) return End(status);
    StartRead(&frame_);
  }
  void OnWriteDone(bool ok) override { Do(queue_.WriteDone(ok)); }
  void OnCancel() override { End(absl::UnavailableError("its connection broke")); }
  void OnDone() override {
    LeaveHalfOpen();
    hello_alarm_.reset();
    self_.reset();
  }

 private:
  enum class State : uint8_t { kHello, kProof, kRegister, kAttached };

  AttachReactor(grpc::CallbackServerContext* context, ClusterLoop* loop,
                const ClusterSecret* secret, std::atomic<int>* num_half_open)
      : context_(context), loop_(loop), listener_(secret), num_half_open_(num_half_open) {}

  void Open() {
    if (num_half_open_->fetch_add(1) >= kMaxHalfOpenAttaches) {
      return End(absl::ResourceExhaustedError("too many connections without a proof"));
    }
    hello_alarm_ = std::make_unique<grpc::Alarm>();
    hello_alarm_->Set(absl::ToChronoTime(absl::Now() + kHelloTimeout),
                      [self = weak_from_this()](bool expired) {
                        const std::shared_ptr<AttachReactor> reactor = self.lock();
                        if (expired && reactor != nullptr) reactor->HelloIsLate();
                      });
    StartRead(&frame_);
  }

  void HelloIsLate() {
    if (!half_open_.load()) return;
    Do(queue_.Abort(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no hello in time")));
  }

  absl::Status HandleFrame() {
    if (state_ == State::kHello || state_ == State::kProof) {
      if (!frame_.payload().empty() || frame_.hello().size() > kMaxHelloBytes) {
        return absl::PermissionDeniedError("a hello is expected");
      }
      return HandleHello();
    }
    ASSIGN_OR_RETURN(WorkerMessage message, DecodeWorkerMessage(frame_.payload()));
    if (state_ == State::kRegister) {
      auto* registration = std::get_if<RegisterMessage>(&message);
      if (registration == nullptr) return absl::InvalidArgumentError("Register is expected");
      state_ = State::kAttached;
      member_.store(loop_->Attach(std::move(*registration), shared_from_this()));
      if (ended_.load()) Lose("its connection broke");
      return absl::OkStatus();
    }
    if (std::holds_alternative<RegisterMessage>(message)) {
      return absl::InvalidArgumentError("Register came twice");
    }
    if (loop_->Receive(member_.load(), std::move(message))) return absl::OkStatus();
    return absl::ResourceExhaustedError("the coordinator is overloaded");
  }

  absl::Status HandleHello() {
    if (state_ == State::kHello) {
      ASSIGN_OR_RETURN(std::string challenge, listener_.Challenge(frame_.hello()));
      v1::Frame answer;
      answer.set_hello(std::move(challenge));
      Do(queue_.Add(std::move(answer)));
      state_ = State::kProof;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(listener_.Check(frame_.hello()));
    state_ = State::kRegister;
    LeaveHalfOpen();
    return absl::OkStatus();
  }

  void LeaveHalfOpen() {
    if (half_open_.exchange(false)) num_half_open_->fetch_sub(1);
  }

  void End(const absl::Status& status) {
    ended_.store(true);
    if (half_open_.load() && status.code() == absl::StatusCode::kPermissionDenied) {
      LOG(WARNING) << "attach.refused peer=" << context_->peer() << " cause=" << status.message();
    }
    if (!closed_.load()) Lose(std::string(status.message()));
    Do(queue_.Abort(ToGrpc(status)));
  }

  void Lose(std::string cause) {
    if (member_.load() != 0 && !lost_.exchange(true)) {
      loop_->Lose(member_.load(), std::move(cause));
    }
  }

  void Do(const Queue::Next& next) {
    if (next.act == Queue::Act::kWrite) StartWrite(next.message);
    if (next.act == Queue::Act::kFinish) Finish(next.status);
  }

  grpc::CallbackServerContext* const context_;  // gone once the call is: for reactions only
  ClusterLoop* const loop_;
  ControlListener listener_;
  std::atomic<int>* const num_half_open_;
  State state_ = State::kHello;  // of the reading side
  v1::Frame frame_;
  std::atomic<MemberId> member_{0};  // once attached
  std::atomic<bool> half_open_{true}, ended_{false}, lost_{false}, closed_{false};
  Queue queue_{kMaxQueuedControlMessages};
  std::unique_ptr<grpc::Alarm> hello_alarm_;
  std::shared_ptr<AttachReactor> self_;
};

class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(ClusterLoop* loop, const ClusterSecret* secret) : loop_(loop), secret_(secret) {}

  grpc::ServerBidiReactor<v1::Frame, v1::Frame>* Attach(
      grpc::CallbackServerContext* context) override {
    return AttachReactor::Create(context, loop_, secret_, &num_half_open_);
  }

 private:
  ClusterLoop* const loop_;
  const ClusterSecret* const secret_;
  std::atomic<int> num_half_open_{0};
};

}  // namespace

ServiceHandle NewControlService(ClusterLoop* loop, const ClusterSecret* secret) {
  return ServiceHandle(new ControlService(loop, secret));
}

}  // namespace cairn

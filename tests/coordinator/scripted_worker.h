// A worker that speaks the real control stream and computes nothing: a test says what it answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/bounded_queue.h"
#include "base/secret.h"
#include "tests/coordinator/cluster_driver.h"
#include "worker/control_client.h"

namespace cairn {

// Thread: the test's; what comes is handled on the client's thread.
class ScriptedWorker {
 public:
  // `on_submit` may send with Send; it runs for every job.
  ScriptedWorker(const std::string& address, const ClusterSecret* secret,
                 std::function<void(ScriptedWorker*, const SubmitMessage&)> on_submit)
      : on_submit_(std::move(on_submit)) {
    client_ = ControlClient::Start(
        {.coordinator = address}, secret,
        {.on_attached =
             [this](std::shared_ptr<ControlConnection> connection) {
               connection_.store(connection);
               Send(ClusterDriver::Info(1));
             },
         .on_message = [this](CoordinatorMessage message) { Handle(message); },
         .on_detached = [this](const absl::Status&) { connection_.store(nullptr); },
         .on_cannot_attach = [](const absl::Status&) {}});
  }
  ~ScriptedWorker() { client_.reset(); }

  void Send(WorkerMessage message) {
    if (const auto connection = connection_.load()) connection->Send(std::move(message));
  }
  void SendToken(JobId job, int32_t token, JobEnd end = JobEnd::kNone) {
    JobEvent event;
    event.job = job;
    event.has_token = true;
    event.token = token;
    event.end = end;
    event.prompt_tokens = 1;
    Send(TokensMessage{{event}});
  }
  void SendEnd(JobId job, JobEnd end) { Send(TokensMessage{{JobEvent{.job = job, .end = end}}}); }

  // The job of the next Cancel that comes; 0 if none does in time.
  JobId NextCancelled() { return cancelled_.Pop(absl::Seconds(20)).value_or(0); }

 private:
  void Handle(const CoordinatorMessage& message) {
    if (std::holds_alternative<AssignMessage>(message)) {
      Send(LoadedMessage{.threads = 1, .max_request_tokens = 64});
    }
    if (const auto* form = std::get_if<FormMessage>(&message)) {
      Send(ReadyMessage{.epoch = form->epoch});
    }
    if (const auto* disband = std::get_if<DisbandMessage>(&message)) {
      Send(LeftMessage{.epoch = disband->epoch});
    }
    if (const auto* submit = std::get_if<SubmitMessage>(&message)) on_submit_(this, *submit);
    if (const auto* cancel = std::get_if<CancelMessage>(&message)) {
      SendEnd(cancel->job, JobEnd::kCancelled);
      (void)cancelled_.TryPush(JobId{cancel->job});
    }
    // Every ping is answered, so that the worker counts as alive.
    if (std::holds_alternative<PingMessage>(message)) Send(HeartbeatMessage());
  }

  const std::function<void(ScriptedWorker*, const SubmitMessage&)> on_submit_;
  std::atomic<std::shared_ptr<ControlConnection>> connection_;
  BoundedQueue<JobId> cancelled_{1024};
  std::unique_ptr<ControlClient> client_;
};

}  // namespace cairn

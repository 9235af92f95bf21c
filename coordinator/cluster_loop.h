// The coordinator's owner thread: it holds the cluster's state and the requests in flight, takes
// events from a bounded queue, and does what the state machine says.
//
// gRPC's threads and the text workers only decode, enqueue and encode.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>

#include "absl/time/time.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "coordinator/answer.h"
#include "coordinator/cluster.h"
#include "coordinator/served_model.h"

namespace cairn {

using RequestId = uint64_t;

// The way to one worker. Thread: any.
class MemberStream {
 public:
  virtual ~MemberStream() = default;
  // False if the worker does not keep up; the owner then closes the stream. Never blocks.
  virtual bool Send(const CoordinatorMessage& message) = 0;
  // Ends the stream after what was sent. The owner has forgotten the member.
  virtual void Close(const absl::Status& cause) = 0;
};

struct CoordinatorStatus {
  ClusterStatus cluster;
  std::string run_id{};
  int32_t requests_in_flight = 0;
  int64_t requests_total = 0;
  absl::Duration uptime = absl::ZeroDuration();
};

class ClusterLoop {
 public:
  struct Options {
    ClusterOptions cluster;
    // Events of workers and requests wait here; beyond half of it they are refused, so that the
    // few that must not be lost (a stream broke, a client left) always find room.
    int32_t max_queued_events = 1 << 16;
    absl::Duration tick_interval = absl::Milliseconds(200);
  };
  // `model` outlives the loop. `on_serving` is called on the loop's thread whenever the cluster
  // begins or ceases to serve, `on_drained` once after Drain.
  ClusterLoop(const Options& options, const ServedModel* model,
              std::function<void(bool serving)> on_serving, std::function<void()> on_drained);
  ~ClusterLoop();  // Ends all requests and streams and joins the thread.

  // ---- Thread: any, for all of these.

  // A worker's first message came. Its later ones and its end go under the id returned.
  MemberId Attach(RegisterMessage message, std::shared_ptr<MemberStream> stream);
  // False if the queue is full: the caller closes the stream.
  bool Receive(MemberId member, WorkerMessage message);
  void Lose(MemberId member, std::string cause);

  RequestId NewRequestId() { return next_request_.fetch_add(1); }
  // From now on the stream's end is the loop's to call, unless an error is returned.
  // Errors: ResourceExhausted if too much waits.
  absl::Status Submit(RequestId id, PreparedRequest request, std::shared_ptr<AnswerStream> stream);
  // The client is gone. An unknown id is ignored.
  void Cancel(RequestId id);

  // `use` is called on the loop's thread. Errors: ResourceExhausted if too much waits.
  absl::Status AskStatus(std::function<void(const CoordinatorStatus&)> use);
  // Admits no more; what still runs after `limit` ends as Unavailable.
  void Drain(absl::Duration limit);

  const std::string& run_id() const { return options_.cluster.run_id; }

 private:
  struct Attached {
    MemberId member;
    RegisterMessage message;
    std::shared_ptr<MemberStream> stream;
  };
  struct Received {
    MemberId member;
    WorkerMessage message;
  };
  struct Lost {
    MemberId member;
    std::string cause;
  };
  struct Submitted {
    RequestId id;
    PreparedRequest request;
    std::shared_ptr<AnswerStream> stream;
  };
  struct Cancelled {
    RequestId id;
  };
  struct StatusAsked {
    std::function<void(const CoordinatorStatus&)> use;
  };
  struct DrainAsked {
    absl::Duration limit;
  };
  using Event =
      std::variant<Attached, Received, Lost, Submitted, Cancelled, StatusAsked, DrainAsked>;

  struct Request {
    std::unique_ptr<Answer> answer;
    std::string name;  // for logs
    absl::Time start;
  };

  bool TryPushData(Event event);  // leaves room for the rest
  void PushNotice(Event event);   // must not be lost
  void Run();
  void Apply(Attached event);
  void Apply(Received event);
  void Apply(Lost event);
  void Apply(Submitted event);
  void Apply(Cancelled event);
  void Apply(StatusAsked event);
  void Apply(DrainAsked event);
  void Do(Actions actions);
  void Do(SendAction action);
  void Do(DropAction action);
  void Do(EndJobAction action);
  void Send(MemberId member, const CoordinatorMessage& message);
  void ApplyTokens(MemberId member, const TokensMessage& message);
  void CancelJob(JobId job);
  // Logs and forgets a request that is done; cancels what still runs of it.
  void Settle(std::unordered_map<RequestId, Request>::iterator request);
  void AfterEvents();
  SubmitMessage MakeSubmit(JobId job, const Cluster::Placement& placement, const Request& request,
                           int32_t choice) const;

  const Options options_;
  const ServedModel* const model_;
  const std::function<void(bool)> on_serving_;
  const std::function<void()> on_drained_;
  std::atomic<MemberId> next_member_{1};
  std::atomic<RequestId> next_request_;
  std::atomic<bool> stopping_{false};
  BoundedQueue<Event> events_;

  // Of the loop's thread.
  RealClock clock_;
  Cluster cluster_;
  std::map<MemberId, std::shared_ptr<MemberStream>> streams_;
  std::unordered_map<RequestId, Request> requests_;
  std::vector<MemberId> slow_members_;
  int64_t requests_total_ = 0;
  bool serving_ = false, drained_ = false;
  absl::Time start_, last_tick_, drain_deadline_ = absl::InfiniteFuture();

  std::thread thread_;  // last: uses all of the above
};

}  // namespace cairn

// A worker's part in its cluster: one state machine between the coordinator's stream and the rank.
//
// It registers, loads the rank it is given, meets the other ranks when told to, and on the leader
// takes requests. When the stream breaks it leaves the group and keeps its weights; when the group
// breaks it says why and waits to be told to meet again.
//
// The owner's thread runs Run(): it holds all state and takes events from a bounded queue. Nothing
// slow happens on it: RankHost has a thread for that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>

#include "absl/time/time.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/unique_handle.h"
#include "proto/control.h"
#include "worker/control_client.h"
#include "worker/engine.h"
#include "worker/rank_host.h"

namespace cairn {

// How a member ended.
enum class MemberEnd : uint8_t {
  kDone,     // asked to, or released
  kRefused,  // it will never fit into this cluster: starting it again does not help
};

class GroupMember {
 public:
  struct Options {
    // What Register says; address, group, rank and size are filled in at each registration.
    RegisterMessage registration;
    // The address other ranks reach this one at; asked for at each registration.
    std::function<absl::StatusOr<std::string>()> choose_address;
    absl::Duration heartbeat_interval = absl::Seconds(1);
    // Of silence, until the coordinator is dialled anew.
    absl::Duration coordinator_timeout = absl::Seconds(10);
    // After RequestEnd: for running requests to finish.
    absl::Duration drain_timeout = absl::Seconds(30);
    int32_t max_queued_events = 1 << 16;
    RankHost::Options host;
  };
  GroupMember(const Options& options, const ClusterSecret* secret, RankLoader loader);
  ~GroupMember();

  // Callbacks for the control client; valid until this is destroyed.
  ControlClient::Callbacks callbacks();
  // Thread: the owner's. Until it is over. `why`: one line, if refused.
  MemberEnd Run(std::string* why);
  // Leave when running requests are done. A second call: at once. Thread: any.
  void RequestEnd();

 private:
  struct Attached {
    std::shared_ptr<ControlConnection> connection;
  };
  struct Detached {
    absl::Status cause;
  };
  struct HostLoading {
    uint64_t load;
    Rank::LoadProgress progress;
  };
  struct HostLoaded {
    uint64_t load;
    absl::StatusOr<LoadedMessage> loaded;
  };
  struct HostReady {
    uint64_t epoch;
    Engine* engine;
  };
  struct HostFailed {
    uint64_t epoch;
    absl::Status cause;
  };
  struct HostLeft {
    uint64_t epoch;
    absl::Status cause;
  };
  struct JobEnded {
    JobId job;
  };
  struct EndRequested {};
  using Event = std::variant<Attached, CoordinatorMessage, Detached, HostLoading, HostLoaded,
                             HostReady, HostFailed, HostLeft, JobEnded, EndRequested>;

  void Post(Event event);
  RankHost::Callbacks HostCallbacks();
  void Tick();
  void Beat();
  void Send(WorkerMessage message);
  // Out of the group of the present epoch, if there is one.
  void LeaveGroup(const absl::Status& cause);
  void Finish(MemberEnd end, std::string why);

  void Apply(Attached event);
  void Apply(Detached event);
  void Apply(CoordinatorMessage event);
  void Apply(HostLoading event);
  void Apply(HostLoaded event);
  void Apply(HostReady event);
  void Apply(HostFailed event);
  void Apply(HostLeft event);
  void Apply(JobEnded event);
  void Apply(EndRequested event);
  void On(const AssignMessage& message);
  void On(const ListenMessage& message);
  void On(const FormMessage& message);
  void On(const DisbandMessage& message);
  void On(const SubmitMessage& message);
  void On(const CancelMessage& message);
  void On(const PingMessage&) {}
  void On(const ReleaseMessage& message);
  void RefuseJob(JobId job, const absl::Status& status);
  void SendTokens();

  const Options options_;
  BoundedQueue<Event> events_;
  RealClock clock_;

  // Of the owner's thread.
  std::shared_ptr<ControlConnection> connection_;  // null: not attached
  std::string address_;
  std::optional<AssignMessage> assignment_;  // of this connection
  std::optional<AssignMessage> loaded_;      // what the host has loaded
  uint64_t load_ = 0;                        // number of the last Load; events of others are stale
  uint64_t epoch_ = 0;                       // of the group we are in or on the way into
  bool forming_ = false;                     // the host has been told to form it
  Engine* engine_ = nullptr;
  UniqueFd listener_;
  std::unordered_map<JobId, Engine::Handle> jobs_;
  absl::Time last_heard_, last_beat_, end_deadline_ = absl::InfiniteFuture();
  bool ending_ = false;
  std::optional<MemberEnd> end_;
  std::string why_;

  // Of the engine's thread: the tokens of one step, sent as one message. A message for each would
  // wake its writer, the coordinator and this thread's processor so often.
  TokensMessage tokens_;
  std::shared_ptr<ControlConnection> tokens_for_;

  std::unique_ptr<RankHost> host_;  // last: its thread posts events
};

}  // namespace cairn

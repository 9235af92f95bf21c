// Who is in the cluster, which rank each worker holds, which groups serve, and which choice of
// which request runs where.
//
// A plain state machine without I/O, clock or lock: every call takes the time and returns what is
// to be done (Actions), which the owner thread does.
//
// A worker attaches and gets a place (group and rank), the one it held before if that is free, so
// that weights stay loaded. When all places of a group are taken its members load; when all have
// loaded they meet under a new epoch; when all are ready the group serves. When a member is lost
// the epoch is over: jobs end with the first cause, the others leave the epoch, and the group meets
// again as soon as its places are taken and loaded. Nobody waits without a deadline.
//
// Thread: one, the owner's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/control.h"

namespace cairn {

using MemberId = uint64_t;

enum class CollectiveChoice : uint8_t { kAuto, kShm, kTcp };

struct ClusterOptions {
  std::string model;         // for messages
  std::string model_digest;  // workers with another one are refused
  std::string run_id;        // random, of this coordinator: part of shared memory names
  int32_t num_groups = 1;
  int32_t group_size = 1;
  EngineSettings settings;
  CollectiveChoice collective = CollectiveChoice::kAuto;  // auto: shm where memory can be shared
  uint64_t first_epoch = 1;                               // larger than any of a coordinator before
  int32_t max_members = 4096;
  int32_t max_jobs = 4096;
  // A member that is not heard from for so long is lost. Busy machines stall for a second: not less
  // than a few.
  absl::Duration heartbeat_timeout = absl::Seconds(5);
  absl::Duration ping_interval = absl::Seconds(1);
  absl::Duration form_timeout = absl::Seconds(30);
  absl::Duration leave_timeout = absl::Seconds(30);
  // A leader with running requests must finish a step within this.
  absl::Duration progress_timeout = absl::Seconds(120);
  absl::Duration min_form_backoff = absl::Milliseconds(200);
  absl::Duration max_form_backoff = absl::Seconds(5);
};

struct SendAction {
  MemberId member = 0;
  CoordinatorMessage message;
};
// Close the member's stream; it is forgotten already.
struct DropAction {
  MemberId member = 0;
  absl::Status cause;
};
// The job is over without an event from its leader, and forgotten already.
struct EndJobAction {
  JobId job = 0;
  absl::Status cause;
};
using Action = std::variant<SendAction, DropAction, EndJobAction>;
using Actions = std::vector<Action>;

enum class MemberState : uint8_t {
  kAttached,  // waits for the other places of its group to be taken, or for a place
  kLoading,
  kLoaded,  // has its weights, computes with nobody
  kForming,
  kReady,
  kLeaving,  // its epoch is over; Left is awaited
};

struct RankStatus {
  int32_t rank = 0;
  bool missing = true;  // no worker holds the rank: the rest is empty
  MemberState state = MemberState::kAttached;
  std::string worker{}, host{}, address{};
  int64_t pid = 0;
  int32_t threads = 0;
  double loading = 0;  // 0..1
  absl::Duration heard_ago = absl::ZeroDuration();
  int64_t weight_bytes = 0, read_bytes = 0, kv_bytes = 0;
};

struct GroupStatus {
  int32_t group = 0;
  bool serving = false;
  uint64_t epoch = 0;        // 0: none
  std::string collective{};  // "solo", "shm", "tcp"; empty if not formed
  std::vector<RankStatus> ranks{};
  std::string last_failure{};
  int32_t num_jobs = 0;
  int32_t max_request_tokens = 0;
  HeartbeatMessage engine;
};

struct ClusterStatus {
  bool serving = false;
  bool draining = false;
  std::string waiting_for{};  // one line; empty when everything serves
  double loading = 0;         // 0..1
  std::vector<GroupStatus> groups{};
  std::vector<RankStatus> spares{};
  int32_t num_jobs = 0;
};

class Cluster {
 public:
  explicit Cluster(ClusterOptions options);

  // A member whose hello is proven sent its first message. `member` is new.
  Actions Attach(MemberId member, const RegisterMessage& message, absl::Time now);
  // Any later message but tokens. Unknown members and stale epochs are ignored.
  Actions Receive(MemberId member, const WorkerMessage& message, absl::Time now);
  // The member's stream broke. Unknown members are ignored.
  Actions Lose(MemberId member, const std::string& cause, absl::Time now);
  // Call it a few times a second. After a longer pause of its own (the machine is busy, the process
  // was stopped) nobody is blamed for that time: what members sent meanwhile is still to be read.
  Actions Tick(absl::Time now);

  struct Placement {
    int32_t group = 0;
    MemberId leader = 0;
    uint64_t epoch = 0;
  };
  // Chooses the serving group with the fewest tokens outstanding for the choices of one request.
  // Errors: Unavailable saying what is waited for; ResourceExhausted at max_jobs.
  absl::StatusOr<Placement> Place(std::span<const JobId> jobs, int64_t tokens_per_job);
  // Where a job runs; nothing if it is over.
  std::optional<Placement> FindJob(JobId job) const;
  // Whether an event of `job` from `member` counts. Its last event (`ended`) forgets the job.
  bool AcceptEvent(MemberId member, JobId job, bool ended, absl::Time now);

  // Admits no more requests. Drained: and none is left.
  void Drain() { draining_ = true; }
  bool drained() const { return draining_ && jobs_.empty(); }

  bool serving() const;
  // The largest prompt and output together that a serving group takes; 0: none serves.
  int32_t max_request_tokens() const;
  ClusterStatus Status(absl::Time now) const;
  size_t num_members() const { return members_.size(); }

 private:
  struct Seat {
    int32_t group = -1, rank = -1;
  };
  struct Member {
    RegisterMessage info;
    Seat place;  // group -1: a spare
    MemberState state = MemberState::kAttached;
    uint64_t epoch = 0;  // of kForming, kReady, kLeaving
    bool listening = false;
    std::string listen_address;
    LoadingMessage loading;
    LoadedMessage loaded;
    HeartbeatMessage heartbeat;
    absl::Time last_heard, last_ping, last_progress, leave_deadline;
    bool wants_to_leave = false;
  };
  enum class Phase : uint8_t { kIdle, kListening, kForming, kServing, kLeaving };
  struct Group {
    std::vector<MemberId> places;  // by rank; 0: free
    Phase phase = Phase::kIdle;
    uint64_t epoch = 0;
    const char* collective = "";
    absl::Time deadline;         // of kListening and kForming
    absl::Time form_not_before;  // after a failure
    int num_failures = 0;        // since it last served
    std::string last_failure;
    std::set<JobId> jobs;
    int64_t outstanding_tokens = 0;
  };
  struct Job {
    int32_t group = 0;
    int64_t tokens = 0;
  };

  Seat ChoosePlace(const RegisterMessage& info) const;
  void TakePlace(MemberId member, Seat place);
  // Moves the group on as far as it goes now.
  void Advance(int32_t group_index, absl::Time now, Actions* actions);
  void AssignGroup(int32_t group_index, Actions* actions);
  void StartForming(int32_t group_index, absl::Time now, Actions* actions);
  void SendForm(int32_t group_index, absl::Time now, Actions* actions);
  absl::StatusOr<bool> NeedsTcp(const Group& group, int32_t group_index) const;
  // Ends the epoch: jobs end with `cause`, members are told to leave it.
  void Disband(int32_t group_index, const std::string& cause, absl::Time now, Actions* actions);
  void EndJobs(Group* group, const absl::Status& cause, Actions* actions);
  void Remove(MemberId member, const std::string& cause, absl::Time now, Actions* actions);
  void Release(MemberId member, const std::string& cause, absl::Time now, Actions* actions);
  void ReleaseLeaving(int32_t group_index, absl::Time now, Actions* actions);
  void PromoteSpare(absl::Time now, Actions* actions);
  int32_t RanksOnHost(const RegisterMessage& info) const;

  void On(Member* member, const LoadingMessage& message);
  void On(MemberId id, Member* member, const LoadedMessage& message, absl::Time now, Actions*);
  void On(MemberId id, Member* member, const RefusedMessage& message, absl::Time now, Actions*);
  void On(MemberId id, Member* member, const ListeningMessage& message, absl::Time now, Actions*);
  void On(MemberId id, Member* member, const ReadyMessage& message, absl::Time now, Actions*);
  void On(MemberId id, Member* member, const LeftMessage& message, absl::Time now, Actions*);
  void On(Member* member, const HeartbeatMessage& message, absl::Time now);

  void ForgiveOwnPause(absl::Time now);
  void CheckDeadlines(int32_t group_index, absl::Time now, Actions* actions);
  std::string RankName(const Member& member) const;
  std::string WaitingFor() const;
  std::string GroupWaitsFor(int32_t group_index) const;
  double Loading(const Member& member) const;
  RankStatus StatusOf(const Member& member, absl::Time now) const;
  bool Serves(const Group& group) const;

  const ClusterOptions options_;
  std::map<MemberId, Member> members_;
  std::vector<Group> groups_;
  std::unordered_map<JobId, Job> jobs_;
  uint64_t next_epoch_;
  absl::Time last_tick_ = absl::InfiniteFuture();
  bool draining_ = false;
};

}  // namespace cairn

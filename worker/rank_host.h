// The thread that loads a rank, brings it into groups and, on followers, runs it.
//
// Slow work of a group member: loading takes minutes, meeting other ranks seconds, following lasts
// as long as the group. Calls queue up and are done in order; what came of them is posted.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/bounded_queue.h"
#include "base/secret.h"
#include "base/status.h"
#include "proto/control.h"
#include "worker/collective.h"
#include "worker/engine.h"
#include "worker/rank.h"

namespace cairn {

// A rank with its weights, and what its group needs to know of it.
struct LoadedRank {
  std::unique_ptr<Rank> rank;
  SchedulerOptions scheduler;  // of the leader's engine
  int64_t max_message_bytes = 0;
  int32_t num_threads = 1;
  std::string identity;  // root of the KV identity
  int32_t max_request_tokens = 0;
  int64_t kv_bytes = 0;  // of the block pool
};
using RankLoader = std::function<absl::StatusOr<LoadedRank>(
    const AssignMessage& assignment, std::function<void(const Rank::LoadProgress&)> on_progress)>;

class RankHost {
 public:
  // Called on the host's thread (on_failed and on_delivered: on the engine's); must not block.
  struct Callbacks {
    std::function<void(uint64_t load, const Rank::LoadProgress& progress)> on_loading;
    std::function<void(uint64_t load, const absl::StatusOr<LoadedMessage>& loaded)> on_loaded;
    // In the group. `engine` is the leader's, null on followers; it lives until Leave.
    std::function<void(uint64_t epoch, Engine* engine)> on_ready;
    // The leader's engine failed and is unusable: Leave must follow.
    std::function<void(uint64_t epoch, const absl::Status& cause)> on_failed;
    // The leader's engine has called on_event for all events of a step.
    std::function<void()> on_delivered = nullptr;
    // Out of the group: asked to, or because of `cause`.
    std::function<void(uint64_t epoch, const absl::Status& cause)> on_left;
  };
  struct Options {
    absl::Duration collective_timeout = absl::Seconds(10);
  };
  RankHost(const Options& options, const ClusterSecret* secret, RankLoader loader,
           Callbacks callbacks);
  ~RankHost();  // Leaves any group and joins the thread.

  // Thread for all of these: the owner's.

  // `load` numbers the call. Loading what is loaded already is done at once.
  void Load(const AssignMessage& assignment, uint64_t load);
  // Meets the other ranks. `listener`: for TCP, where they were told to connect; -1 otherwise.
  void Form(const FormMessage& form, int listener);
  // Leaves the group of `epoch` if it is in it, or meets no longer; `cause` is handed on to
  // on_left.
  void Leave(uint64_t epoch, const absl::Status& cause);

 private:
  void Enqueue(std::function<void()> work);
  void DoLoad(const AssignMessage& assignment, uint64_t load);
  void DoForm(const FormMessage& form, int listener);
  void DoLeave(uint64_t epoch, const absl::Status& cause);
  absl::StatusOr<std::unique_ptr<Collective>> Meet(const FormMessage& form, int listener);
  absl::Status StartEngine(uint64_t epoch);

  const Options options_;
  const ClusterSecret* const secret_;
  const RankLoader loader_;
  const Callbacks callbacks_;
  std::atomic<uint64_t> left_epoch_{0};  // the last one that Leave was called for
  std::atomic<bool> ending_{false};

  // Of the host's thread.
  AssignMessage assignment_;
  LoadedRank loaded_;
  uint64_t epoch_ = 0;
  std::unique_ptr<Collective> collective_;
  std::unique_ptr<Engine> engine_;  // uses rank and collective: destroyed first
  std::atomic<bool> engine_failed_{false};

  BoundedQueue<std::function<void()>> work_;
  std::thread thread_;
};

}  // namespace cairn

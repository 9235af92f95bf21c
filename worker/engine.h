// The engine of a group's leader: takes requests, runs the scheduler and the steps, hands out
// tokens.
//
// One engine thread owns the scheduler and all its state: it applies submitted and cancelled
// requests, plans a step, runs it through the StepExecutor and applies the result. On the CPU back
// end the step itself uses every core, so planning on the same thread costs nothing that overlap
// could win back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "worker/request.h"
#include "worker/scheduler.h"
#include "worker/step.h"

namespace cairn {

struct EngineStats {
  int32_t num_waiting = 0, num_running = 0;
  int32_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;  // cached: free to evict
  int64_t num_steps = 0, num_preemptions = 0;                          // steps with work
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  double last_step_seconds = 0;
  double longest_step_seconds = 0;
};

class Engine {
 public:
  struct Options {
    // At most max_waiting + max_running requests exist at once.
    SchedulerOptions scheduler;
    int32_t max_queued_events = 4096;  // submissions not yet taken by the engine thread
    // What comes this soon after the first request of an idle engine, or after the last that did,
    // joins its step, and so does what is being submitted meanwhile; for four times as long at
    // most: together they read the weights, and a prefix they share, once.
    absl::Duration gather_time = absl::Milliseconds(1);
    // An idle group's leader runs an empty step this often, so that ranks notice each other's
    // death.
    absl::Duration idle_step_interval = absl::Seconds(1);
    bool idle_steps = false;  // true for groups of more than one rank
    // Called on the engine thread behind each run of on_event calls: what they have collected can
    // be handed on at once. Must not block. May be null.
    std::function<void()> on_delivered = nullptr;
  };
  // `on_failure` is called once, on the engine thread, when the executor fails: every request has
  // by then ended with kError. Errors: InvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(
      const Options& options, std::unique_ptr<StepExecutor> executor,
      std::function<void(absl::Status)> on_failure);
  // Ends what runs with kCancelled and joins the thread. Thread: any but the engine's.
  virtual ~Engine() = default;

  using Handle = uint64_t;
  // Queues a request. `on_event` is called on the engine thread and must not block; it may submit
  // and cancel. Its last call has a finish reason; it is never called after the engine is gone.
  // Thread: any. Errors: InvalidArgument if it can never fit (names the limit); ResourceExhausted
  // if there are too many requests or queued events; Unavailable after a failure;
  // FailedPrecondition when draining.
  virtual absl::StatusOr<Handle> Submit(GenerateRequest request,
                                        std::function<void(const TokenEvent&)> on_event) = 0;
  // Ends a request with kCancelled, before the next step; unknown or ended handles are ignored.
  // A token that is being computed may still come before the end. Thread: any.
  virtual void Cancel(Handle handle) = 0;
  // Stops admitting; running requests finish. Thread: any.
  virtual void Drain() = 0;
  // Thread: any. As of the last step; all fields of one moment.
  virtual EngineStats stats() const = 0;

  // Hands the logits of a computed position to the request behind `slot` of the running step, if
  // it captures them. For an executor's capture function (Rank::SetLogitsCapture). A position
  // found in the prefix cache is not computed; one computed again after preemption comes again.
  // Thread: the engine's, during StepExecutor::Run.
  virtual void OnLogits(int32_t slot, int32_t position, std::span<const float> logits) = 0;
};

}  // namespace cairn

// Continuous batching: which sequences advance in the next step, and which blocks they hold.
//
// A plain state machine without I/O, clock or lock. Each step serves running decodes first and
// gives the rest of a token budget to prefill, chunked, so the longest gap between two tokens of a
// running stream is bounded by the time of one budget. Most of the rest goes to the oldest prompt,
// a part to the shortest (worker/prefill_share.h), which need not wait for a long one. A sequence
// enters with blocks for all its known tokens, if one more is left while others run; in layers with
// a window with as many as the window and a step need, which it gives back and takes as it goes.
// When blocks run out the youngest running sequence is preempted and later recomputed from its
// tokens. Prefixes are shared inside the worker by the block identity of kvstore/key.h; a partly
// equal last block is reused by copy. The last known token is always computed.
//
// Nobody waits for ever. A request for which there are no blocks is overtaken by younger ones at
// most kMaxOvertakes times; then nobody enters before it, and it enters at the latest when all who
// run have ended. A request whose next block another sequence is just computing (its prompt starts
// alike) lets others pass until that sequence has computed all they share, or has left.
//
// Invariants, checked after every step: free + held + cached blocks = num_blocks; a plan has no
// more rows than max_step_tokens; whenever something waits or runs, the plan has a row.
// Thread: one, the engine's; HashPrompt any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvstore/key.h"
#include "worker/kv_group.h"
#include "worker/request.h"
#include "worker/sequence_blocks.h"
#include "worker/step.h"

namespace cairn {

// How many younger requests may enter while an older one waits for blocks.
inline constexpr int32_t kMaxOvertakes = 16;
// How many prompts may be in prefill at once although fewer would fill the step: among so many
// the shortest are looked for.
inline constexpr size_t kMaxPrefillsAhead = 16;
// How many waiting requests that cannot enter are looked at in one plan.
inline constexpr int32_t kMaxLookahead = 64;

struct SchedulerOptions {
  int32_t num_blocks = 0;  // of the pool
  int32_t block_tokens = 16;
  std::vector<KvGroup> groups = {{}};  // of the model's layers
  // Slots: sequences that hold blocks at once. No more than max_step_tokens are used, so that
  // every step can serve every decode.
  int32_t max_running = 64;
  int32_t max_step_tokens = 512;  // rows of a step
  int32_t max_waiting = 1024;     // requests that hold none
  int32_t context_length = 0;     // tokens of prompt and output together
  int32_t vocab_size = 0;
  bool prefix_cache = true;
  std::string identity_root;  // root of the chain of block keys (kvstore/key.h), 32 bytes
};

KvBooks::Options PoolOptions(const SchedulerOptions& options);

struct SchedulerStats {
  int32_t num_waiting = 0, num_running = 0;
  int32_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;
  int64_t num_preemptions = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
};

// Of a prompt's full blocks; empty if the request does without the prefix cache.
struct PromptKeys {
  BlockKey root;
  std::vector<BlockKey> blocks = {};
};

class Scheduler {
 public:
  // Errors: InvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerOptions& options);
  virtual ~Scheduler() = default;

  // The largest prompt + output the pool and the context allow, in tokens.
  virtual int32_t max_request_tokens() const = 0;

  // The costly part of Add, a fraction of a millisecond for thousands of tokens, which needs none
  // of the scheduler's state: whoever submits does it beside the running steps.
  virtual PromptKeys HashPrompt(const GenerateRequest& request) const = 0;
  // Queues a request under `handle`, which is new. Errors: those of CheckRequest
  // (worker/request_check.h); ResourceExhausted if max_waiting is reached (the engine, which counts
  // all of its requests, never lets it come to that).
  virtual absl::Status Add(uint64_t handle, GenerateRequest request, PromptKeys keys) = 0;
  // Ends a request and says what it has used; nothing if it is unknown. Its blocks are free (or
  // cached) from the next plan on. May come between a plan and its result.
  virtual std::optional<Usage> Cancel(uint64_t handle) = 0;

  // The next step, or a plan with nothing to do. Every plan must be run and applied before the
  // next one is asked for.
  virtual StepPlan Plan() = 0;
  struct Event {
    uint64_t handle = 0;
    TokenEvent event;
  };
  // Takes the result of the last plan; events in order. A token that ends its request comes with
  // the reason in the same event; so does a stop id, which counts as a completion token: whoever
  // makes text of the tokens leaves it out.
  virtual std::vector<Event> Apply(const StepResult& result) = 0;
  // The request behind a slot of the last plan, or null; for capture_logits.
  virtual const GenerateRequest* RequestOfSlot(int32_t slot) const = 0;
  // Ends all requests and forgets all KV (the group failed or closes): last events in order of
  // arrival. Also between a plan and its result, which then does not come.
  virtual std::vector<Event> AbortAll(FinishReason reason, const absl::Status& error) = 0;

  // A request waits or runs, or the ranks do not know yet that one has ended.
  virtual bool HasWork() const = 0;
  virtual SchedulerStats stats() const = 0;
};

}  // namespace cairn

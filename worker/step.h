// What the scheduler tells every rank to do in one step, and what comes back.
//
// A plan is a delta: new sequences, new blocks, finished sequences, and which sequences advance by
// how many tokens. It carries no block tables and no sampled tokens (each rank keeps what it
// sampled: all ranks sample alike), so its size does not grow with the context. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/sampling.h"

namespace cairn {

// A sequence enters a free slot. Also after preemption: then `tokens` are the prompt and what was
// generated so far.
// The start of one table of a sequence.
struct TableStart {
  int32_t first_block = 0;           // those before it are never read
  std::vector<int32_t> blocks = {};  // of the pool, from there on, in order

  bool operator==(const TableStart&) const = default;
};

struct SequenceStart {
  int32_t slot = 0;
  std::vector<int32_t> tokens;     // all that is known of the sequence
  int32_t num_prompt_tokens = 0;   // of `tokens`: the rest counts as output for the penalties
  int32_t num_cached_tokens = 0;   // KV of this many is already in the blocks
  std::vector<TableStart> tables;  // of all layer groups, one group behind the other
  SamplingParams sampling;
  // Ids that may not be sampled before position `banned_before` (EOS and stop ids, min_tokens).
  std::vector<int32_t> banned_ids;
  int32_t banned_before = 0;
};

struct BlockAppend {
  int32_t slot = 0;
  int32_t table = 0;
  int32_t block = 0;
};

// The first num_tokens tokens of a block's KV, all heads.
struct BlockCopy {
  int32_t from = 0, to = 0;
  int32_t num_tokens = 0;
};

// The next num_tokens tokens of a slot's sequence are computed. `sample`: the row of the last one
// is sampled and the token appended to the sequence (only when it is the last known token).
struct StepSegment {
  int32_t slot = 0;
  int32_t num_tokens = 0;
  bool sample = false;
  bool capture_logits = false;  // hand the logits of every row to the capture function
};

// Applied in this order: finished, starts, appends, copies, segments.
struct StepPlan {
  uint64_t step = 0;
  std::vector<int32_t> finished;  // slots that become free
  std::vector<SequenceStart> starts;
  std::vector<BlockAppend> appends;
  std::vector<BlockCopy> copies;
  std::vector<StepSegment> segments;
};

struct StepToken {
  int32_t slot = 0;
  SampledToken sampled;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<StepToken> tokens;  // one per segment with `sample`, in plan order
};

// Runs plans, in order, on all ranks of a group. Implementations: a rank alone, the leader of a
// group (worker/rank.h), a scripted model in tests.
// Thread: the engine's.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  // Errors: Unavailable if a rank is lost: the executor is then unusable.
  virtual absl::StatusOr<StepResult> Run(const StepPlan& plan) = 0;
};

// The longest plan on the wire: room for some 60 million token ids.
inline constexpr int64_t kMaxStepPlanBytes = int64_t{256} << 20;

// Wire form of a plan, between ranks. Decode trusts nothing and takes memory in proportion to the
// message; whether slots, blocks and ids exist is for the rank to check.
// Errors of Decode: InvalidArgument naming the field.
std::string EncodeStepPlan(const StepPlan& plan);
absl::StatusOr<StepPlan> DecodeStepPlan(const std::string& bytes);

}  // namespace cairn

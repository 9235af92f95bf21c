// What a rank knows of the sequences of its group: tokens, blocks, sampling state, by slot.
//
// Every rank holds the same table, because every rank applies the same plans and samples the same
// tokens. Plans come over the wire: nothing in one is trusted.
// Thread: the executor's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "worker/kv_tables.h"
#include "worker/step.h"

namespace cairn {

struct SlotLimits {
  int32_t max_slots = 0;
  int32_t max_rows = 0;  // of a step
  int32_t num_blocks = 0;
  int32_t block_tokens = 0;
  int32_t num_tables = 1;
  int32_t context_length = 0;
  int32_t vocab_size = 0;
};

struct SlotState {
  bool active = false;
  std::vector<int32_t> tokens;
  int32_t num_computed = 0;  // tokens whose KV is in the blocks
  // By table. Entries of blocks that nobody reads any more are some block of the pool.
  std::vector<std::vector<int32_t>> tables;
  SamplingParams sampling;
  std::vector<int32_t> banned_ids;
  int32_t banned_before = 0;
  std::vector<TokenCount> counts;  // sorted by id; kept only while a penalty is on
};

// The rows of a step, made from a plan.
struct StepRows {
  std::vector<int32_t> tokens, positions;  // [T]
  std::vector<TableRows> tables;
  struct Sample {
    int32_t slot = 0, row = 0;
  };
  std::vector<Sample> samples;  // in plan order
  struct Capture {
    int32_t slot = 0, row = 0, position = 0;
  };
  std::vector<Capture> captures;
};

class SlotTable {
 public:
  explicit SlotTable(const SlotLimits& limits);

  // Applies everything of a plan but the computation and fills `rows`, whose sequences point into
  // this table until the next call. Copies are the caller's to make before the rows are computed.
  // Errors: InvalidArgument naming the field, the value and the limit; the table is then unusable.
  absl::Status Apply(const StepPlan& plan, StepRows* rows);
  // The segments of the plan are computed.
  void Advance(const StepPlan& plan);
  // Appends a sampled token.
  void Append(int32_t slot, int32_t token);
  const SlotState& state(int32_t slot) const { return states_[slot]; }

 private:
  absl::Status Start(const SequenceStart& start);
  absl::Status CheckTables(const SequenceStart& start) const;
  // Tokens for which a sequence has blocks in every table.
  int64_t HeldTokens(const SlotState& sequence) const;
  absl::Status AddSegment(const StepSegment& segment, StepRows* rows);
  absl::Status CheckSlot(int32_t slot, bool active, const char* field) const;
  absl::Status CheckBlock(int32_t block, const char* field) const;

  const SlotLimits limits_;
  std::vector<SlotState> states_;  // [max_slots]
};

}  // namespace cairn

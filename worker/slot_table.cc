#include "worker/slot_table.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/log.h"

namespace cairn {
namespace {

bool HasPenalty(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
         sampling.frequency_penalty != 0.0f;
}

TokenCount& CountOf(std::vector<TokenCount>* counts, int32_t token) {
  const auto at =
      std::lower_bound(counts->begin(), counts->end(), token,
                       [](const TokenCount& count, int32_t id) { return count.token < id; });
  if (at != counts->end() && at->token == token) return *at;
  return *counts->insert(at, {.token = token, .in_output = 0, .in_prompt = false});
}

// Sorts once instead of inserting one by one: prompts are long.
std::vector<TokenCount> CountPrompt(std::span<const int32_t> prompt) {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<TokenCount> counts;
  counts.reserve(ids.size());
  for (const int32_t id : ids) counts.push_back({.token = id, .in_output = 0, .in_prompt = true});
  return counts;
}

absl::Status OutOfRange(const char* field, int64_t value, int64_t limit) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "step plan field out of range: field=%s value=%d limit=%d", field, value, limit));
}

}  // namespace

SlotTable::SlotTable(const SlotLimits& limits) : limits_(limits), states_(limits.max_slots) {}

absl::Status SlotTable::CheckSlot(int32_t slot, bool active, const char* field) const {
  if (slot < 0 || slot >= limits_.max_slots) return OutOfRange(field, slot, limits_.max_slots);
  if (states_[slot].active != active) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step plan names a slot that is %s: field=%s slot=%d",
                        active ? "free" : "taken", field, slot));
  }
  return absl::OkStatus();
}

absl::Status SlotTable::CheckBlock(int32_t block, const char* field) const {
  if (block >= 0 && block < limits_.num_blocks) return absl::OkStatus();
  return OutOfRange(field, block, limits_.num_blocks);
}

int64_t SlotTable::HeldTokens(const SlotState& sequence) const {
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const std::vector<int32_t>& blocks : sequence.tables)
    fewest = std::min(fewest, blocks.size());
  return static_cast<int64_t>(fewest) * limits_.block_tokens;
}

absl::Status SlotTable::CheckTables(const SequenceStart& start) const {
  const auto num_tables = static_cast<int64_t>(start.tables.size());
  if (num_tables != limits_.num_tables)
    return OutOfRange("starts.tables", num_tables, limits_.num_tables);
  for (const TableStart& table : start.tables) {
    // The blocks before are full of cached tokens.
    const int32_t first_limit = start.num_cached_tokens / limits_.block_tokens;
    if (table.first_block < 0 || table.first_block > first_limit)
      return OutOfRange("starts.tables.first_block", table.first_block, first_limit);
    const int64_t held =
        (table.first_block + static_cast<int64_t>(table.blocks.size())) * limits_.block_tokens;
    if (start.num_cached_tokens > held)
      return OutOfRange("starts.num_cached_tokens beyond the blocks", start.num_cached_tokens,
                        held);
    for (const int32_t block : table.blocks)
      RETURN_IF_ERROR(CheckBlock(block, "starts.tables.blocks"));
  }
  return absl::OkStatus();
}

absl::Status SlotTable::Start(const SequenceStart& start) {
  RETURN_IF_ERROR(CheckSlot(start.slot, false, "starts.slot"));
  const auto num_tokens = static_cast<int64_t>(start.tokens.size());
  if (num_tokens < 1 || num_tokens > limits_.context_length)
    return OutOfRange("starts.tokens", num_tokens, limits_.context_length);
  if (start.num_prompt_tokens < 0 || start.num_prompt_tokens > num_tokens)
    return OutOfRange("starts.num_prompt_tokens", start.num_prompt_tokens, num_tokens);
  if (start.num_cached_tokens < 0 || start.num_cached_tokens > num_tokens - 1)
    return OutOfRange("starts.num_cached_tokens", start.num_cached_tokens, num_tokens - 1);
  for (const int32_t token : start.tokens) {
    if (token < 0 || token >= limits_.vocab_size)
      return OutOfRange("starts.tokens id", token, limits_.vocab_size);
  }
  RETURN_IF_ERROR(CheckTables(start));
  SlotState& sequence = states_[start.slot];
  sequence = {.active = true,
              .tokens = start.tokens,
              .num_computed = start.num_cached_tokens,
              .tables = {},
              .sampling = start.sampling,
              .banned_ids = start.banned_ids,
              .banned_before = start.banned_before,
              .counts = {}};
  for (const TableStart& table : start.tables) {
    std::vector<int32_t>& blocks = sequence.tables.emplace_back(table.first_block, 0);
    blocks.insert(blocks.end(), table.blocks.begin(), table.blocks.end());
  }
  if (HasPenalty(sequence.sampling)) {
    sequence.counts = CountPrompt(std::span(start.tokens).first(start.num_prompt_tokens));
    for (const int32_t token : std::span(start.tokens).subspan(start.num_prompt_tokens))
      ++CountOf(&sequence.counts, token).in_output;
  }
  return absl::OkStatus();
}

absl::Status SlotTable::AddSegment(const StepSegment& segment, StepRows* rows) {
  RETURN_IF_ERROR(CheckSlot(segment.slot, true, "segments.slot"));
  const SlotState& sequence = states_[segment.slot];
  const int32_t first = sequence.num_computed;
  const int64_t known = static_cast<int64_t>(sequence.tokens.size()) - first;
  if (segment.num_tokens < 1 || segment.num_tokens > known)
    return OutOfRange("segments.num_tokens", segment.num_tokens, known);
  const int64_t held = HeldTokens(sequence);
  if (first + segment.num_tokens > held)
    return OutOfRange("segments.num_tokens beyond the blocks", first + segment.num_tokens, held);
  if (segment.sample && segment.num_tokens != known)
    return OutOfRange("segments.sample before the last token", segment.num_tokens, known);
  const auto first_row = static_cast<int32_t>(rows->tokens.size());
  if (first_row + int64_t{segment.num_tokens} > limits_.max_rows)
    return OutOfRange("segments rows", first_row + int64_t{segment.num_tokens}, limits_.max_rows);
  for (int32_t i = 0; i < segment.num_tokens; ++i) {
    const int32_t position = first + i;
    rows->tokens.push_back(sequence.tokens[position]);
    rows->positions.push_back(position);
    if (segment.capture_logits) rows->captures.push_back({segment.slot, first_row + i, position});
  }
  for (size_t table = 0; table < sequence.tables.size(); ++table) {
    const std::vector<int32_t>& blocks = sequence.tables[table];
    TableRows& out = rows->tables[table];
    for (int32_t i = 0; i < segment.num_tokens; ++i)
      out.blocks.push_back(blocks[(first + i) / limits_.block_tokens]);
    out.sequences.push_back({blocks.data(), first_row, first, segment.num_tokens});
  }
  if (segment.sample) rows->samples.push_back({segment.slot, first_row + segment.num_tokens - 1});
  return absl::OkStatus();
}

absl::Status SlotTable::Apply(const StepPlan& plan, StepRows* rows) {
  *rows = {};
  rows->tables.resize(limits_.num_tables);
  for (const int32_t slot : plan.finished) {
    RETURN_IF_ERROR(CheckSlot(slot, true, "finished"));
    states_[slot] = {};
  }
  for (const SequenceStart& start : plan.starts) RETURN_IF_ERROR(Start(start));
  for (const BlockAppend& append : plan.appends) {
    RETURN_IF_ERROR(CheckSlot(append.slot, true, "appends.slot"));
    RETURN_IF_ERROR(CheckBlock(append.block, "appends.block"));
    if (append.table < 0 || append.table >= limits_.num_tables)
      return OutOfRange("appends.table", append.table, limits_.num_tables);
    states_[append.slot].tables[append.table].push_back(append.block);
  }
  for (const BlockCopy& copy : plan.copies) {
    RETURN_IF_ERROR(CheckBlock(copy.from, "copies.from"));
    RETURN_IF_ERROR(CheckBlock(copy.to, "copies.to"));
    if (copy.from == copy.to) return OutOfRange("copies.to equals copies.from", copy.to, copy.from);
  }
  for (const StepSegment& segment : plan.segments) RETURN_IF_ERROR(AddSegment(segment, rows));
  return absl::OkStatus();
}

void SlotTable::Advance(const StepPlan& plan) {
  for (const StepSegment& segment : plan.segments)
    states_[segment.slot].num_computed += segment.num_tokens;
}

void SlotTable::Append(int32_t slot, int32_t token) {
  SlotState& sequence = states_[slot];
  CHECK(sequence.active) << slot;
  sequence.tokens.push_back(token);
  if (HasPenalty(sequence.sampling)) ++CountOf(&sequence.counts, token).in_output;
}

}  // namespace cairn

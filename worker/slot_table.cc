#include "worker/slot_table.h"

#include <algorithm>

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

absl::Status SlotTable::Start(const SequenceStart& start) {
  RETURN_IF_ERROR(CheckSlot(start.slot, false, "starts.slot"));
  const auto num_tokens = static_cast<int64_t>(start.tokens.size());
  if (num_tokens < 1 || num_tokens > limits_.context_length)
    return OutOfRange("starts.tokens", num_tokens, limits_.context_length);
  if (start.num_prompt_tokens < 0 || start.num_prompt_tokens > num_tokens)
    return OutOfRange("starts.num_prompt_tokens", start.num_prompt_tokens, num_tokens);
  const int64_t held_tokens = static_cast<int64_t>(start.blocks.size()) * limits_.block_tokens;
  const int64_t cached_limit = std::min(num_tokens - 1, held_tokens);
  if (start.num_cached_tokens < 0 || start.num_cached_tokens > cached_limit)
    return OutOfRange("starts.num_cached_tokens", start.num_cached_tokens, cached_limit);
  for (const int32_t token : start.tokens) {
    if (token < 0 || token >= limits_.vocab_size)
      return OutOfRange("starts.tokens id", token, limits_.vocab_size);
  }
  for (const int32_t block : start.blocks) RETURN_IF_ERROR(CheckBlock(block, "starts.blocks"));
  SlotState& sequence = states_[start.slot];
  sequence = {.active = true,
              .tokens = start.tokens,
              .num_computed = start.num_cached_tokens,
              .blocks = start.blocks,
              .sampling = start.sampling,
              .banned_ids = start.banned_ids,
              .banned_before = start.banned_before,
              .counts = {}};
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
  const int64_t held = static_cast<int64_t>(sequence.blocks.size()) * limits_.block_tokens;
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
    rows->blocks.push_back(sequence.blocks[position / limits_.block_tokens]);
    if (segment.capture_logits) rows->captures.push_back({segment.slot, first_row + i, position});
  }
  rows->sequences.push_back({sequence.blocks.data(), first_row, first, segment.num_tokens});
  if (segment.sample) rows->samples.push_back({segment.slot, first_row + segment.num_tokens - 1});
  return absl::OkStatus();
}

absl::Status SlotTable::Apply(const StepPlan& plan, StepRows* rows) {
  *rows = {};
  for (const int32_t slot : plan.finished) {
    RETURN_IF_ERROR(CheckSlot(slot, true, "finished"));
    states_[slot] = {};
  }
  for (const SequenceStart& start : plan.starts) RETURN_IF_ERROR(Start(start));
  for (const BlockAppend& append : plan.appends) {
    RETURN_IF_ERROR(CheckSlot(append.slot, true, "appends.slot"));
    RETURN_IF_ERROR(CheckBlock(append.block, "appends.block"));
    states_[append.slot].blocks.push_back(append.block);
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

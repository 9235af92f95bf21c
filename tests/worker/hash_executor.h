// A model executor for tests of the scheduler: a step costs nothing, and any mistake shows.
//
// The next token is a hash of all tokens before it, the end of the prompt and the seed, so a token
// that is lost, doubled or out of order changes everything after it. The KV of a position is the
// hash of the tokens up to it: blocks that do not hold what a plan claims are found out when they
// are read. Blocks are poisoned when they are handed out without content.
// Thread: one at a time. Errors: Internal naming the rule of worker/step.h that a plan breaks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "worker/request.h"
#include "worker/scheduler.h"
#include "worker/step.h"

namespace cairn {

class HashModel {
 public:
  static constexpr uint64_t kEmptyPrefix = 0x9e3779b97f4a7c15;

  static uint64_t Mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0xbf58476d1ce4e5b9;
    return hash ^ (hash >> 29);
  }

  // What is sampled after tokens that hash to `prefix`.
  static SampledToken Next(uint64_t prefix, const SamplingParams& sampling, int32_t num_prompt,
                           int32_t position, const std::vector<int32_t>& banned, int32_t vocab) {
    uint64_t hash = Mix(Mix(Mix(prefix, sampling.seed), sampling.choice), num_prompt);
    SampledToken result;
    result.token = static_cast<int32_t>(Mix(hash, position) % vocab);
    while (std::find(banned.begin(), banned.end(), result.token) != banned.end()) {
      result.token = (result.token + 1) % vocab;
    }
    result.logprob = -static_cast<float>(hash % 1000);
    return result;
  }

  struct Output {
    std::vector<int32_t> tokens;
    FinishReason finish_reason = FinishReason::kLength;
  };
  // What a request gives alone, with all the room there is.
  static Output LoneRun(const GenerateRequest& request, const SchedulerOptions& options) {
    Output output;
    uint64_t prefix = kEmptyPrefix;
    for (const int32_t token : request.prompt) prefix = Mix(prefix, token);
    const auto num_prompt = static_cast<int32_t>(request.prompt.size());
    const auto end = static_cast<int32_t>(
        std::min<int64_t>({num_prompt + int64_t{request.max_tokens}, options.context_length,
                           int64_t{MaxTokensInPool(PoolOptions(options))} + 1}));
    for (int32_t position = num_prompt; position < end; ++position) {
      const bool may_stop = position >= num_prompt + request.min_tokens;
      const SampledToken next =
          Next(prefix, request.sampling, num_prompt, position,
               may_stop ? std::vector<int32_t>{} : request.stop_ids, options.vocab_size);
      output.tokens.push_back(next.token);
      prefix = Mix(prefix, next.token);
      if (std::find(request.stop_ids.begin(), request.stop_ids.end(), next.token) !=
          request.stop_ids.end()) {
        output.finish_reason = FinishReason::kStop;
        break;
      }
    }
    return output;
  }
};

class HashExecutor : public StepExecutor {
 public:
  explicit HashExecutor(const SchedulerOptions& options)
      : options_(options),
        kv_(options.num_blocks, std::vector<uint64_t>(options.block_tokens, kPoison)),
        num_holders_(options.num_blocks) {
    for (const KvGroup& group : options.groups)
      group_of_table_.insert(group_of_table_.end(), group.num_tables, group);
  }

  absl::StatusOr<StepResult> Run(const StepPlan& plan) override {
    if (plan.step != num_steps_++) return Broken("step %d is out of order", plan.step);
    for (const int32_t slot : plan.finished) {
      if (!slots_.contains(slot)) return Broken("finished slot %d is free", slot);
      for (int32_t table = 0; table < num_tables(); ++table)
        LetGo(&slots_[slot], table, std::numeric_limits<int32_t>::max());
      slots_.erase(slot);
    }
    for (const SequenceStart& start : plan.starts) RETURN_IF_ERROR(Start(start));
    for (const BlockAppend& append : plan.appends) {
      if (!slots_.contains(append.slot)) return Broken("append to free slot %d", append.slot);
      if (append.table < 0 || append.table >= num_tables()) return Broken("no such table");
      RETURN_IF_ERROR(GiveEmptyBlock(append.block));
      Push(&slots_[append.slot], append.table, append.block);
    }
    for (const BlockCopy& copy : plan.copies) RETURN_IF_ERROR(Copy(copy));
    StepResult result;
    result.step = plan.step;
    int32_t num_rows = 0;
    std::set<int32_t> advanced;
    for (const StepSegment& segment : plan.segments) {
      if (!advanced.insert(segment.slot).second) return Broken("slot %d twice", segment.slot);
      num_rows += segment.num_tokens;
      RETURN_IF_ERROR(Advance(segment, &result));
    }
    if (num_rows > options_.max_step_tokens) return Broken("%d rows in a step", num_rows);
    longest_step_rows_ = std::max(longest_step_rows_, num_rows);
    num_rows_ += num_rows;
    return result;
  }

  int32_t num_active_slots() const { return static_cast<int32_t>(slots_.size()); }
  int32_t longest_step_rows() const { return longest_step_rows_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_copied_tokens() const { return num_copied_tokens_; }

  // Called with slot and position of each computed row of a segment that asks for its logits.
  std::function<void(int32_t slot, int32_t position)> on_logits;
  // Whether the sequence that began so gets no token now.
  std::function<bool(const SequenceStart& start)> gives_nothing;

 private:
  static constexpr uint64_t kPoison = 0xdeaddeaddeaddead;

  struct Slot {
    SequenceStart start;
    std::vector<int32_t> tokens;
    std::vector<std::vector<int32_t>> tables;
    std::vector<int32_t> first_held;  // by table
    std::vector<uint64_t> prefixes;   // hash of the tokens up to each position
    int32_t num_computed = 0;

    void Append(int32_t token) {
      tokens.push_back(token);
      prefixes.push_back(
          HashModel::Mix(prefixes.empty() ? HashModel::kEmptyPrefix : prefixes.back(), token));
    }
  };

  template <typename... Args>
  static absl::Status Broken(const absl::FormatSpec<Args...>& format, const Args&... args) {
    return absl::InternalError(absl::StrFormat(format, args...));
  }

  int32_t num_tables() const { return static_cast<int32_t>(group_of_table_.size()); }

  uint64_t& Kv(const Slot& slot, int32_t table, int32_t position) {
    const int32_t block = slot.tables[table][position / options_.block_tokens];
    return kv_[block][position % options_.block_tokens];
  }

  // The first position of a table that a slot still sees.
  int32_t FirstSeen(const Slot& slot, int32_t table) const {
    return FirstSeenToken(group_of_table_[table], slot.num_computed);
  }

  void Push(Slot* slot, int32_t table, int32_t block) {
    slot->tables[table].push_back(block);
    ++num_holders_[block];
  }
  // The slot holds the blocks of a table from `first` on, no longer those before.
  void LetGo(Slot* slot, int32_t table, int32_t first) {
    std::vector<int32_t>& blocks = slot->tables[table];
    int32_t& held = slot->first_held[table];
    for (; held < std::min(first, static_cast<int32_t>(blocks.size())); ++held)
      --num_holders_[blocks[held]];
  }

  absl::Status GiveEmptyBlock(int32_t block) {
    if (block < 0 || block >= options_.num_blocks) return Broken("no such block: %d", block);
    if (num_holders_[block] != 0) return Broken("block %d is given while it is held", block);
    std::fill(kv_[block].begin(), kv_[block].end(), kPoison);
    return absl::OkStatus();
  }

  absl::Status Start(const SequenceStart& start) {
    if (start.slot < 0 || start.slot >= options_.max_running) return Broken("no such slot");
    if (slots_.contains(start.slot)) return Broken("slot %d is taken", start.slot);
    const auto num_tokens = static_cast<int32_t>(start.tokens.size());
    if (start.num_cached_tokens >= num_tokens) return Broken("nothing to compute");
    Slot slot;
    slot.start = start;
    for (const int32_t token : start.tokens) slot.Append(token);
    slot.num_computed = start.num_cached_tokens;
    const int32_t num_shared = start.num_cached_tokens / options_.block_tokens;
    if (static_cast<int32_t>(start.tables.size()) != num_tables()) return Broken("other tables");
    std::set<int32_t> distinct;
    for (int32_t table = 0; table < num_tables(); ++table) {
      const TableStart& from = start.tables[table];
      if (from.first_block > FirstSeen(slot, table) / options_.block_tokens) {
        return Broken("table %d lacks blocks that are seen", table);
      }
      const std::vector<int32_t>& blocks = slot.tables.emplace_back(from.first_block, kNoBundle);
      slot.first_held.push_back(from.first_block);
      for (const int32_t block : from.blocks) {
        if (static_cast<int32_t>(blocks.size()) >= num_shared) {
          RETURN_IF_ERROR(GiveEmptyBlock(block));
        }
        if (!distinct.insert(block).second) return Broken("a sequence holds block %d twice", block);
        Push(&slot, table, block);
      }
    }
    slots_.emplace(start.slot, std::move(slot));
    return absl::OkStatus();
  }

  absl::Status Copy(const BlockCopy& copy) {
    if (num_holders_[copy.to] != 1)
      return Broken("copy to block %d, which is not one's own", copy.to);
    for (int32_t i = 0; i < copy.num_tokens; ++i) {
      if (kv_[copy.from][i] == kPoison) return Broken("copy of nothing from block %d", copy.from);
      kv_[copy.to][i] = kv_[copy.from][i];
    }
    num_copied_tokens_ += copy.num_tokens;
    return absl::OkStatus();
  }

  // Reads what the first row of the segment sees of a table, and writes the rows.
  absl::Status AdvanceTable(const StepSegment& segment, int32_t table, Slot* slot) {
    const int32_t end = slot->num_computed + segment.num_tokens;
    if (end > static_cast<int32_t>(slot->tables[table].size()) * options_.block_tokens) {
      return Broken("no block for position %d of slot %d", end - 1, segment.slot);
    }
    for (int32_t i = FirstSeen(*slot, table); i < slot->num_computed; ++i) {
      if (Kv(*slot, table, i) != slot->prefixes[i]) {
        return Broken("KV of position %d of slot %d is not that of its prefix", i, segment.slot);
      }
    }
    for (int32_t i = slot->num_computed; i < end; ++i) {
      if (num_holders_[slot->tables[table][i / options_.block_tokens]] != 1) {
        return Broken("slot %d writes a shared block", segment.slot);
      }
      Kv(*slot, table, i) = slot->prefixes[i];
    }
    return absl::OkStatus();
  }

  absl::Status Advance(const StepSegment& segment, StepResult* result) {
    if (!slots_.contains(segment.slot)) return Broken("segment of free slot %d", segment.slot);
    Slot& slot = slots_[segment.slot];
    const int32_t end = slot.num_computed + segment.num_tokens;
    const auto num_tokens = static_cast<int32_t>(slot.tokens.size());
    if (segment.num_tokens < 1 || end > num_tokens) return Broken("more rows than known tokens");
    if (segment.sample != (end == num_tokens)) return Broken("sample away from the last token");
    for (int32_t table = 0; table < num_tables(); ++table)
      RETURN_IF_ERROR(AdvanceTable(segment, table, &slot));
    for (int32_t i = slot.num_computed; i < end; ++i)
      if (segment.capture_logits && on_logits) on_logits(segment.slot, i);
    slot.num_computed = end;
    for (int32_t table = 0; table < num_tables(); ++table)
      LetGo(&slot, table, FirstSeen(slot, table) / options_.block_tokens);
    if (!segment.sample) return absl::OkStatus();
    const std::vector<int32_t> banned =
        num_tokens < slot.start.banned_before ? slot.start.banned_ids : std::vector<int32_t>{};
    const SampledToken next =
        HashModel::Next(slot.prefixes.back(), slot.start.sampling, slot.start.num_prompt_tokens,
                        num_tokens, banned, options_.vocab_size);
    if (gives_nothing && gives_nothing(slot.start)) {
      result->tokens.push_back({.slot = segment.slot, .sampled = {}});
      return absl::OkStatus();
    }
    slot.Append(next.token);
    result->tokens.push_back({.slot = segment.slot, .sampled = next});
    return absl::OkStatus();
  }

  const SchedulerOptions options_;
  std::vector<std::vector<uint64_t>> kv_;  // [block][token in block]
  std::vector<KvGroup> group_of_table_;
  std::vector<int32_t> num_holders_;  // by block
  std::map<int32_t, Slot> slots_;
  uint64_t num_steps_ = 0;
  int32_t longest_step_rows_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_copied_tokens_ = 0;
};

}  // namespace cairn

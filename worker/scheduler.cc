#include "worker/scheduler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "worker/prefill_share.h"
#include "worker/request_check.h"
#include "worker/request_state.h"
#include "worker/sequence_blocks.h"

namespace cairn {
namespace {

constexpr int32_t kMaxBlockTokens = 4096;
constexpr int32_t kMaxSlots = 65536;
constexpr int32_t kMaxStepTokensLimit = 1 << 20;

class SchedulerImpl final : public Scheduler {
 public:
  SchedulerImpl(const SchedulerOptions& options, const BlockKey& identity_root);

  int32_t max_request_tokens() const override { return MaxRequestTokens(limits_); }
  PromptKeys HashPrompt(const GenerateRequest& request) const override;
  absl::Status Add(uint64_t handle, GenerateRequest request, PromptKeys keys) override;
  std::optional<Usage> Cancel(uint64_t handle) override;
  StepPlan Plan() override;
  std::vector<Event> Apply(const StepResult& result) override;
  const GenerateRequest* RequestOfSlot(int32_t slot) const override;
  std::vector<Event> AbortAll(FinishReason reason, const absl::Status& error) override;
  bool HasWork() const override {
    return !waiting_.empty() || !running_.empty() || !freed_slots_.empty();
  }
  SchedulerStats stats() const override;

 private:
  using ByArrival = std::map<int64_t, std::unique_ptr<RequestState>>;
  enum class Admission { kAdmitted, kNoBlocks, kPrefixInFlight };

  void PlanDecodes(StepPlan* plan, int32_t* budget);
  bool Grow(RequestState* request, StepPlan* plan);
  int32_t TakeRoom(RequestState* request, StepPlan* plan);
  void PlanPrefills(bool may_admit, int32_t budget, StepPlan* plan);
  bool MakeRoom(RequestState* request, std::span<RequestState* const> prefills, StepPlan* plan);
  void PlanSegment(RequestState* request, int32_t num_tokens, StepPlan* plan);
  void AdmitWaiting(int32_t budget, StepPlan* plan, std::vector<RequestState*>* prefills);
  Admission TryAdmit(RequestState* request, StepPlan* plan);
  bool AwaitsPrefix(RequestState* request, int32_t num_matched) const;
  void Enter(RequestState* request, PrefixMatch match, StepPlan* plan);
  void Preempt(RequestState* request);

  void IndexComputedBlocks(RequestState* request);
  void ReleaseBlocks(RequestState* request);
  void Leave(RequestState* request);
  bool UsesPrefixCache(const GenerateRequest& request) const {
    return options_.prefix_cache && request.use_prefix_cache;
  }

  const SchedulerOptions options_;  // max_running as it is used
  const RequestLimits limits_;
  const BlockKey identity_root_;
  KvBooks books_;

  ByArrival waiting_, running_;
  absl::flat_hash_map<uint64_t, RequestState*> by_handle_;
  std::vector<RequestState*> by_slot_;  // null: free
  std::vector<int32_t> free_slots_;
  std::vector<int32_t> freed_slots_;  // the ranks are told with the next plan
  // Full blocks of known tokens that a running sequence has still to compute, and which.
  absl::flat_hash_map<BlockKey, const RequestState*> in_flight_;

  int64_t num_arrivals_ = 0;
  uint64_t num_plans_ = 0;
  bool plan_pending_ = false;
  std::vector<StepSegment> planned_;   // of the pending plan
  std::vector<int32_t> copy_sources_;  // held until the pending plan has run
  SchedulerStats stats_;
};

SchedulerImpl::SchedulerImpl(const SchedulerOptions& options, const BlockKey& identity_root)
    : options_(options),
      limits_({.vocab_size = options.vocab_size,
               .context_length = options.context_length,
               .pool_tokens = MaxTokensInPool(PoolOptions(options))}),
      identity_root_(identity_root),
      books_(PoolOptions(options)),
      by_slot_(options.max_running) {
  for (int32_t slot = options.max_running - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

PromptKeys SchedulerImpl::HashPrompt(const GenerateRequest& request) const {
  PromptKeys keys;
  if (!UsesPrefixCache(request)) return keys;
  keys.root = ScopeRoot(identity_root_, {.cache_salt = request.cache_salt});
  const auto num_full = static_cast<int32_t>(request.prompt.size()) / options_.block_tokens;
  ExtendKeys(keys.root, request.prompt, num_full, options_.block_tokens, &keys.blocks);
  return keys;
}

absl::Status SchedulerImpl::Add(uint64_t handle, GenerateRequest request, PromptKeys keys) {
  RETURN_IF_ERROR(CheckRequest(request, limits_));
  if (static_cast<int64_t>(waiting_.size()) >= options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("too many requests wait: most=%d", options_.max_waiting));
  }
  auto state = std::make_unique<RequestState>();
  state->handle = handle;
  state->arrival = num_arrivals_++;
  state->tokens = request.prompt;
  state->end_tokens = static_cast<int32_t>(std::min<int64_t>(
      max_request_tokens(), static_cast<int64_t>(request.prompt.size()) + request.max_tokens));
  state->use_prefix_cache = UsesPrefixCache(request);
  state->root = keys.root;
  state->keys = std::move(keys.blocks);
  state->usage.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  state->request = std::move(request);
  CHECK(by_handle_.emplace(handle, state.get()).second) << "handle is in use: " << handle;
  waiting_.emplace(state->arrival, std::move(state));
  return absl::OkStatus();
}

std::optional<Usage> SchedulerImpl::Cancel(uint64_t handle) {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return std::nullopt;
  RequestState* request = found->second;
  const Usage usage = request->usage;
  if (request->slot >= 0 && plan_pending_) {
    // The ranks may be computing it. Nobody can name it any more; Apply takes it away.
    request->cancelled = true;
    by_handle_.erase(found);
    return usage;
  }
  Leave(request);
  return usage;
}

StepPlan SchedulerImpl::Plan() {
  CHECK(!plan_pending_) << "the last plan has not been applied";
  StepPlan plan;
  plan.step = num_plans_++;
  int32_t budget = options_.max_step_tokens;
  const int64_t preemptions_before = stats_.num_preemptions;
  PlanDecodes(&plan, &budget);
  CHECK_GE(budget, 0);
  // Who has just made room for an older sequence must not take it back.
  const bool may_admit = stats_.num_preemptions == preemptions_before;
  if (budget > 0) PlanPrefills(may_admit, budget, &plan);
  CHECK(!plan.segments.empty() || (waiting_.empty() && running_.empty()))
      << "nothing advances: waiting " << waiting_.size() << " running " << running_.size();
  plan.finished = std::exchange(freed_slots_, {});
  planned_ = plan.segments;
  plan_pending_ = true;
  return plan;
}

// Oldest first, so that a sequence which is preempted for an older one has no row in the plan yet.
void SchedulerImpl::PlanDecodes(StepPlan* plan, int32_t* budget) {
  for (auto next = running_.begin(); next != running_.end(); ++next) {
    RequestState* request = next->second.get();
    if (!request->is_decoding()) continue;
    if (!Grow(request, plan)) return;
    PlanSegment(request, 1, plan);
    --*budget;
  }
}

// Gives the sequence room for its next token. False if it was the youngest and had to leave.
bool SchedulerImpl::Grow(RequestState* request, StepPlan* plan) {
  while (TakeRoom(request, plan) < request->num_tokens()) {
    RequestState* youngest = running_.rbegin()->second.get();
    CHECK_GE(running_.size(), 2u) << "a lone sequence has outgrown the pool";
    if (youngest == request) {
      // What it has just been given goes with it.
      std::erase_if(plan->appends, [slot = request->slot](const BlockAppend& append) {
        return append.slot == slot;
      });
      Preempt(request);
      return false;
    }
    Preempt(youngest);
  }
  return true;
}

// Takes the blocks that the sequence may have. Returns how many of its tokens have one then.
int32_t SchedulerImpl::TakeRoom(RequestState* request, StepPlan* plan) {
  return books_.Extend(request->num_computed, request->num_tokens(), request->slot,
                       &request->blocks, &plan->appends);
}

void SchedulerImpl::PlanPrefills(bool may_admit, int32_t budget, StepPlan* plan) {
  std::vector<RequestState*> prefills;
  for (const auto& [arrival, request] : running_) {
    if (!request->is_decoding()) prefills.push_back(request.get());
  }
  const int64_t preemptions_before = stats_.num_preemptions;
  std::vector<RequestState*> stuck;
  for (RequestState* request : prefills) {
    if (request->slot >= 0 && !MakeRoom(request, prefills, plan)) stuck.push_back(request);
  }
  std::erase_if(prefills, [&](const RequestState* request) {
    return request->slot < 0 || std::find(stuck.begin(), stuck.end(), request) != stuck.end();
  });
  if (may_admit && stats_.num_preemptions == preemptions_before) {
    AdmitWaiting(budget, plan, &prefills);
  }
  std::sort(prefills.begin(), prefills.end(),
            [](const RequestState* a, const RequestState* b) { return a->arrival < b->arrival; });
  std::vector<int32_t> pending;
  for (RequestState* request : prefills)
    pending.push_back(TakeRoom(request, plan) - request->num_computed);
  const std::vector<int32_t> rows = SharePrefillRows(pending, budget);
  for (size_t i = 0; i < prefills.size(); ++i) {
    if (rows[i] > 0) PlanSegment(prefills[i], rows[i], plan);
  }
}

// Prefill takes blocks of windows as it goes. It gives back as many as it takes, but others may
// hold some of them: then younger ones of the running `prefills` make room, which have no part in
// this plan yet. False if that is not enough for a token: it waits until the others go on.
bool SchedulerImpl::MakeRoom(RequestState* request, std::span<RequestState* const> prefills,
                             StepPlan* plan) {
  while (TakeRoom(request, plan) <= request->num_computed) {
    while (prefills.back()->slot < 0) prefills = prefills.first(prefills.size() - 1);
    if (prefills.back() == request) return false;
    Preempt(prefills.back());
  }
  return true;
}

void SchedulerImpl::PlanSegment(RequestState* request, int32_t num_tokens, StepPlan* plan) {
  CHECK(num_tokens >= 1 && num_tokens <= request->num_pending());
  plan->segments.push_back({.slot = request->slot,
                            .num_tokens = num_tokens,
                            .sample = num_tokens == request->num_pending(),
                            .capture_logits = request->request.capture_logits != nullptr});
}

// Adds those who enter to `prefills`.
void SchedulerImpl::AdmitWaiting(int32_t budget, StepPlan* plan,
                                 std::vector<RequestState*>* prefills) {
  int64_t num_pending = 0;
  for (const RequestState* request : *prefills) num_pending += request->num_pending();
  std::vector<RequestState*> overtaken;
  int32_t num_passed = 0;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (free_slots_.empty() || num_passed >= kMaxLookahead) return;
    if (num_pending >= budget && prefills->size() >= kMaxPrefillsAhead) return;
    const auto current = next++;
    RequestState* request = current->second.get();
    const Admission admission = TryAdmit(request, plan);
    if (admission == Admission::kAdmitted) {
      running_.insert(waiting_.extract(current));
      prefills->push_back(request);
      num_pending += request->num_pending();
      for (RequestState* older : overtaken) ++older->num_overtakes;
      for (const RequestState* older : overtaken) {
        if (older->num_overtakes >= kMaxOvertakes) return;
      }
      continue;
    }
    ++num_passed;
    if (admission == Admission::kPrefixInFlight) continue;
    if (request->num_overtakes >= kMaxOvertakes) return;
    overtaken.push_back(request);
  }
}

SchedulerImpl::Admission SchedulerImpl::TryAdmit(RequestState* request, StepPlan* plan) {
  if (request->awaited_block && in_flight_.contains(*request->awaited_block)) {
    return Admission::kPrefixInFlight;
  }
  request->awaited_block.reset();
  PrefixMatch match;
  if (request->use_prefix_cache) {
    request->ExtendKeys(request->num_tokens() / options_.block_tokens, options_.block_tokens);
    // The last token is computed in any case: the next one is sampled from its row.
    match = books_.Match(request->root, request->keys,
                         std::span(request->tokens).first(request->tokens.size() - 1));
    if (AwaitsPrefix(request, match.num_blocks)) return Admission::kPrefixInFlight;
  } else {
    match.groups.resize(options_.groups.size());
  }
  const int32_t spare_rows = running_.empty() ? 0 : 1;
  if (!books_.Take(&match, request->num_tokens(), spare_rows, &request->blocks)) {
    return Admission::kNoBlocks;
  }
  Enter(request, std::move(match), plan);
  return Admission::kAdmitted;
}

// Whether another sequence is computing the first block the pool does not have. If so, notes the
// last such block: looking again before that one is there would be in vain.
bool SchedulerImpl::AwaitsPrefix(RequestState* request, int32_t num_matched) const {
  for (auto i = static_cast<size_t>(num_matched); i < request->keys.size(); ++i) {
    if (!in_flight_.contains(request->keys[i])) break;
    request->awaited_block = request->keys[i];
  }
  return request->awaited_block.has_value();
}

// Its blocks are taken.
void SchedulerImpl::Enter(RequestState* request, PrefixMatch match, StepPlan* plan) {
  books_.AppendCopies(match, request->blocks, &plan->copies);
  copy_sources_.insert(copy_sources_.end(), match.copy_from.begin(), match.copy_from.end());
  request->num_computed = match.num_blocks * options_.block_tokens + match.copy_tokens;
  request->num_indexed = match.num_blocks;
  request->num_overtakes = 0;
  request->slot = free_slots_.back();
  free_slots_.pop_back();
  by_slot_[request->slot] = request;
  plan->starts.push_back(request->Start());
  plan->starts.back().tables = books_.Tables(request->blocks);
  for (size_t i = match.num_blocks; i < request->keys.size(); ++i) {
    in_flight_.emplace(request->keys[i], request);
  }
  if (request->was_admitted) return;
  request->was_admitted = true;
  request->usage.cached_tokens = request->num_computed;
  stats_.prompt_tokens += request->num_prompt_tokens();
  stats_.cached_tokens += request->num_computed;
}

void SchedulerImpl::Preempt(RequestState* request) {
  ReleaseBlocks(request);
  ++request->usage.num_preemptions;
  ++stats_.num_preemptions;
  waiting_.insert(running_.extract(request->arrival));
}

std::vector<Scheduler::Event> SchedulerImpl::Apply(const StepResult& result) {
  CHECK(plan_pending_);
  CHECK_EQ(result.step + 1, num_plans_);
  plan_pending_ = false;
  std::vector<Event> events;
  size_t num_sampled = 0;
  for (const StepSegment& segment : planned_) {
    RequestState* request = by_slot_[segment.slot];
    CHECK(request != nullptr);
    request->num_computed += segment.num_tokens;
    stats_.computed_tokens += segment.num_tokens;
    IndexComputedBlocks(request);
    books_.Slide(request->num_computed, &request->blocks);
    if (segment.sample) {
      CHECK_LT(num_sampled, result.tokens.size());
      const StepToken& token = result.tokens[num_sampled++];
      CHECK_EQ(token.slot, segment.slot);
      CHECK(token.sampled.token >= kNoToken && token.sampled.token < options_.vocab_size);
      if (!request->cancelled) {
        events.push_back({request->handle, request->Append(token.sampled)});
        if (events.back().event.has_token) ++stats_.generated_tokens;
        if (events.back().event.finish_reason != FinishReason::kNone) Leave(request);
      }
    }
  }
  CHECK_EQ(num_sampled, result.tokens.size());
  planned_.clear();
  books_.Release(&copy_sources_);
  for (RequestState* request : by_slot_) {
    if (request != nullptr && request->cancelled) Leave(request);
  }
  const BlockPool& pool = books_.pool();
  CHECK_EQ(pool.num_free() + pool.num_held() + pool.num_cached(), pool.num_blocks());
  return events;
}

// Makes the full blocks whose KV has been computed findable. A block equal to one that is indexed
// already stays its sequence's own.
void SchedulerImpl::IndexComputedBlocks(RequestState* request) {
  if (!request->use_prefix_cache) return;
  const int32_t num_full = request->num_computed / options_.block_tokens;
  request->ExtendKeys(num_full, options_.block_tokens);
  for (; request->num_indexed < num_full; ++request->num_indexed) {
    const int32_t i = request->num_indexed;
    books_.Index(request->ParentKey(i), request->keys[i],
                 request->BlockTokens(i, options_.block_tokens), i, request->blocks);
    const auto flight = in_flight_.find(request->keys[i]);
    if (flight != in_flight_.end() && flight->second == request) in_flight_.erase(flight);
  }
}

// Takes slot and blocks of a running sequence; what is computed stays findable.
void SchedulerImpl::ReleaseBlocks(RequestState* request) {
  // An equal block that stood for one of these may be gone: offer them all again.
  request->num_indexed = 0;
  IndexComputedBlocks(request);
  for (const BlockKey& key : request->keys) {
    const auto flight = in_flight_.find(key);
    if (flight != in_flight_.end() && flight->second == request) in_flight_.erase(flight);
  }
  books_.Release(&request->blocks);
  request->num_computed = request->num_indexed = 0;
  by_slot_[request->slot] = nullptr;
  free_slots_.push_back(request->slot);
  freed_slots_.push_back(request->slot);
  request->slot = -1;
}

// Ends a request, waiting or running. It is gone afterwards.
void SchedulerImpl::Leave(RequestState* request) {
  if (request->slot >= 0) ReleaseBlocks(request);
  if (!request->cancelled) by_handle_.erase(request->handle);
  const int64_t arrival = request->arrival;
  CHECK_EQ(waiting_.erase(arrival) + running_.erase(arrival), 1u);
}

const GenerateRequest* SchedulerImpl::RequestOfSlot(int32_t slot) const {
  if (slot < 0 || slot >= options_.max_running || by_slot_[slot] == nullptr) return nullptr;
  return &by_slot_[slot]->request;
}

std::vector<Scheduler::Event> SchedulerImpl::AbortAll(FinishReason reason,
                                                      const absl::Status& error) {
  plan_pending_ = false;
  planned_.clear();
  books_.Release(&copy_sources_);
  ByArrival all = std::exchange(waiting_, {});
  std::vector<Event> events;
  for (auto& [arrival, request] : running_) {
    ReleaseBlocks(request.get());
    all.emplace(arrival, std::move(request));
  }
  running_.clear();
  by_handle_.clear();
  freed_slots_.clear();
  books_.EvictAll();
  for (const auto& [arrival, request] : all) {
    if (request->cancelled) continue;
    TokenEvent event;
    event.finish_reason = reason;
    event.error = error;
    event.usage = request->usage;
    events.push_back({request->handle, std::move(event)});
  }
  CHECK_EQ(books_.pool().num_free(), books_.pool().num_blocks());
  return events;
}

SchedulerStats SchedulerImpl::stats() const {
  SchedulerStats stats = stats_;
  stats.num_waiting = static_cast<int32_t>(waiting_.size());
  stats.num_running = static_cast<int32_t>(running_.size());
  stats.num_blocks = books_.pool().num_blocks();
  stats.num_free_blocks = books_.pool().num_free();
  stats.num_cached_blocks = books_.pool().num_cached();
  return stats;
}

absl::Status CheckOption(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is out of range: value=%d least=%d most=%d", name, value, least, most));
}

}  // namespace

KvBooks::Options PoolOptions(const SchedulerOptions& options) {
  return {.num_blocks = options.num_blocks,
          .block_tokens = options.block_tokens,
          .max_step_tokens = options.max_step_tokens,
          .groups = options.groups};
}

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(CheckOption("num_blocks", options.num_blocks, 1, kMost));
  RETURN_IF_ERROR(CheckOption("block_tokens", options.block_tokens, 1, kMaxBlockTokens));
  RETURN_IF_ERROR(CheckOption("max_running", options.max_running, 1, kMaxSlots));
  RETURN_IF_ERROR(CheckOption("max_step_tokens", options.max_step_tokens, 1, kMaxStepTokensLimit));
  RETURN_IF_ERROR(CheckOption("max_waiting", options.max_waiting, 1, kMost));
  // Two: one token of a prompt and one of an answer.
  RETURN_IF_ERROR(CheckOption("context_length", options.context_length, 2, kMost));
  RETURN_IF_ERROR(CheckOption("groups", std::ssize(options.groups), 1, kMaxKvGroups));
  for (const KvGroup& group : options.groups) {
    RETURN_IF_ERROR(CheckOption("groups.window", group.window, 0, kMost));
    RETURN_IF_ERROR(CheckOption("groups.num_tables", group.num_tables, 1, kMaxTables));
  }
  int64_t num_tables = 0;  // all of them, or a sequence has no place for its first token
  for (const KvGroup& group : options.groups) num_tables += group.num_tables;
  RETURN_IF_ERROR(CheckOption("num_blocks", options.num_blocks, num_tables, kMost));
  RETURN_IF_ERROR(CheckOption("vocab_size", options.vocab_size, 1, kMost));
  BlockKey identity_root;
  if (options.prefix_cache) {
    ASSIGN_OR_RETURN(identity_root, ParseBlockKey(options.identity_root));
  }
  SchedulerOptions used = options;
  used.max_running = std::min(options.max_running, options.max_step_tokens);
  return std::make_unique<SchedulerImpl>(used, identity_root);
}

}  // namespace cairn

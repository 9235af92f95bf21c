#include "worker/engine.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/log.h"
#include "worker/request_check.h"
#include "worker/stats_cell.h"

namespace cairn {
namespace {

using OnEvent = std::function<void(const TokenEvent&)>;

// A handle is a serial number above the place of the request in the table of cancellations.
constexpr int kPlaceBits = 20;
constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;

constexpr int kMaxGatherTimes = 4;  // in all, while more come or are being hashed

struct Submission {
  Engine::Handle handle = 0;  // 0: only wakes the thread
  GenerateRequest request;
  PromptKeys keys;
  OnEvent on_event;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(const Options& options, std::unique_ptr<Scheduler> scheduler,
             std::unique_ptr<StepExecutor> executor, std::function<void(absl::Status)> on_failure);
  ~EngineImpl() override;

  absl::StatusOr<Handle> Submit(GenerateRequest request, OnEvent on_event) override;
  void Cancel(Handle handle) override;
  void Drain() override { draining_ = true; }
  EngineStats stats() const override { return published_.Load(); }
  void OnLogits(int32_t slot, int32_t position, std::span<const float> logits) override;

 private:
  void Loop();
  absl::Duration IdleTime();
  bool TakeSubmissions(absl::Duration patience);
  void Gather();
  void Take(Submission submission);
  void TakeCancellations();
  absl::Status RunStep();
  void Fail(const absl::Status& cause);
  void EndAll(FinishReason reason, const absl::Status& error);
  void Deliver(Handle handle, const TokenEvent& event);
  void DeliverAll(const std::vector<Scheduler::Event>& events);
  void PublishStats();

  const Options options_;
  const RequestLimits limits_;

  // Shared with callers.
  BoundedQueue<Submission> submissions_;
  BoundedQueue<int32_t> free_places_;
  // By place: the newest handle whose cancellation is wanted. Unlike an event in a queue, that
  // always has room.
  std::vector<std::atomic<Handle>> cancellations_;
  std::atomic<bool> cancellation_wanted_ = false;
  std::atomic<uint64_t> next_serial_ = 1;
  std::atomic<int> num_hashing_ = 0;  // requests whose prompts are being hashed
  std::atomic<bool> draining_ = false, stopping_ = false;
  std::atomic<bool> failed_ = false;
  absl::Status failure_;  // written before failed_ is set
  StatsCell<EngineStats> published_;

  // The engine thread's.
  const std::unique_ptr<Scheduler> scheduler_;
  const std::unique_ptr<StepExecutor> executor_;
  const std::function<void(absl::Status)> on_failure_;
  absl::flat_hash_map<Handle, OnEvent> requests_;
  RealClock clock_;
  absl::Time last_step_end_ = clock_.Now();
  EngineStats stats_;

  std::thread thread_;  // last: starts when all else is there
};

int32_t MaxRequests(const SchedulerOptions& options) {
  return static_cast<int32_t>(int64_t{options.max_waiting} + options.max_running);
}

EngineImpl::EngineImpl(const Options& options, std::unique_ptr<Scheduler> scheduler,
                       std::unique_ptr<StepExecutor> executor,
                       std::function<void(absl::Status)> on_failure)
    : options_(options),
      limits_({.vocab_size = options.scheduler.vocab_size,
               .context_length = options.scheduler.context_length,
               .pool_tokens = MaxTokensInPool(PoolOptions(options.scheduler))}),
      submissions_(options.max_queued_events),
      free_places_(MaxRequests(options.scheduler)),
      cancellations_(MaxRequests(options.scheduler)),
      scheduler_(std::move(scheduler)),
      executor_(std::move(executor)),
      on_failure_(std::move(on_failure)) {
  for (int32_t place = 0; place < MaxRequests(options.scheduler); ++place) {
    CHECK(free_places_.TryPush(std::move(place)));
  }
  PublishStats();
  thread_ = std::thread([this] { Loop(); });
}

EngineImpl::~EngineImpl() {
  CHECK(thread_.get_id() != std::this_thread::get_id());
  stopping_ = true;
  submissions_.Close();
  thread_.join();
}

absl::StatusOr<Engine::Handle> EngineImpl::Submit(GenerateRequest request, OnEvent on_event) {
  if (failed_) {
    return absl::UnavailableError(absl::StrCat("the engine has failed: ", failure_.message()));
  }
  if (draining_) return absl::FailedPreconditionError("the engine is draining");
  RETURN_IF_ERROR(CheckRequest(request, limits_));
  const std::optional<int32_t> place = free_places_.Pop(absl::ZeroDuration());
  if (!place) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many requests: most=", cancellations_.size()));
  }
  num_hashing_.fetch_add(1);
  const absl::Cleanup hashed = [this] { num_hashing_.fetch_sub(1); };
  const Handle handle = next_serial_.fetch_add(1) << kPlaceBits | static_cast<uint64_t>(*place);
  PromptKeys keys = scheduler_->HashPrompt(request);
  if (submissions_.TryPush({handle, std::move(request), std::move(keys), std::move(on_event)})) {
    return handle;
  }
  CHECK(free_places_.TryPush(int32_t{*place}));
  if (failed_ || stopping_) return absl::UnavailableError("the engine has failed or is closing");
  return absl::ResourceExhaustedError(
      absl::StrCat("too many submissions are queued: most=", options_.max_queued_events));
}

void EngineImpl::Cancel(Handle handle) {
  const uint64_t place = handle & kPlaceMask;
  if (place >= cancellations_.size()) return;
  // An old handle of the same place must not undo the cancellation of a newer one.
  Handle wanted = cancellations_[place].load();
  do {
    if (wanted >= handle) return;
  } while (!cancellations_[place].compare_exchange_weak(wanted, handle));
  if (cancellation_wanted_.exchange(true)) return;
  // Wakes an idle thread; a full queue does that too.
  (void)submissions_.TryPush(Submission());
}

void EngineImpl::OnLogits(int32_t slot, int32_t position, std::span<const float> logits) {
  const GenerateRequest* request = scheduler_->RequestOfSlot(slot);
  if (request != nullptr && request->capture_logits) request->capture_logits(position, logits);
}

void EngineImpl::Loop() {
  while (!stopping_) {
    const bool was_idle = !scheduler_->HasWork();
    TakeSubmissions(IdleTime());
    if (was_idle && scheduler_->HasWork()) Gather();
    TakeCancellations();
    if (stopping_) break;
    const bool idle_step_due =
        options_.idle_steps && clock_.Now() - last_step_end_ >= options_.idle_step_interval;
    if (!scheduler_->HasWork() && !idle_step_due) {
      PublishStats();
      continue;
    }
    const absl::Status status = RunStep();
    if (!status.ok()) return Fail(status);
  }
  TakeSubmissions(absl::ZeroDuration());
  EndAll(FinishReason::kCancelled, absl::OkStatus());
}

// How long the thread may wait for a submission before it has something to do by itself.
absl::Duration EngineImpl::IdleTime() {
  if (scheduler_->HasWork()) return absl::ZeroDuration();
  if (!options_.idle_steps) return absl::InfiniteDuration();
  return last_step_end_ + options_.idle_step_interval - clock_.Now();
}

bool EngineImpl::TakeSubmissions(absl::Duration patience) {
  std::deque<Submission> taken = submissions_.PopAll(patience);
  for (Submission& submission : taken) Take(std::move(submission));
  return !taken.empty();
}

void EngineImpl::Gather() {
  const absl::Time end = clock_.Now() + kMaxGatherTimes * options_.gather_time;
  bool more = true;
  while (more && !stopping_ && clock_.Now() < end) {
    const bool taken = TakeSubmissions(std::min(options_.gather_time, end - clock_.Now()));
    more = taken || num_hashing_ > 0;
  }
  TakeSubmissions(absl::ZeroDuration());  // came between the last wait and the last look
}

void EngineImpl::Take(Submission submission) {
  const Handle handle = submission.handle;
  if (handle == 0) return;
  requests_.emplace(handle, std::move(submission.on_event));
  const absl::Status status =
      scheduler_->Add(handle, std::move(submission.request), std::move(submission.keys));
  // Submit has checked the request and counted it.
  CHECK_OK(status);
  // It may have been cancelled while it was queued.
  if (cancellations_[handle & kPlaceMask].load() == handle) cancellation_wanted_ = true;
}

void EngineImpl::TakeCancellations() {
  if (!cancellation_wanted_.exchange(false)) return;
  std::vector<Scheduler::Event> events;
  for (const auto& [handle, on_event] : requests_) {
    if (cancellations_[handle & kPlaceMask].load() != handle) continue;
    const std::optional<Usage> usage = scheduler_->Cancel(handle);
    CHECK(usage.has_value());
    TokenEvent event;
    event.finish_reason = FinishReason::kCancelled;
    event.usage = *usage;
    events.push_back({handle, std::move(event)});
  }
  DeliverAll(events);
}

absl::Status EngineImpl::RunStep() {
  const absl::Time begin = clock_.Now();
  const StepPlan plan = scheduler_->Plan();
  ASSIGN_OR_RETURN(const StepResult result, executor_->Run(plan));
  const std::vector<Scheduler::Event> events = scheduler_->Apply(result);
  last_step_end_ = clock_.Now();
  if (!plan.segments.empty()) {
    ++stats_.num_steps;
    stats_.last_step_seconds = absl::ToDoubleSeconds(last_step_end_ - begin);
    stats_.longest_step_seconds = std::max(stats_.longest_step_seconds, stats_.last_step_seconds);
  }
  PublishStats();
  DeliverAll(events);
  return absl::OkStatus();
}

void EngineImpl::Fail(const absl::Status& cause) {
  LOG(ERROR) << "engine_failed requests=" << requests_.size() << " cause=" << cause.ToString();
  failure_ = cause;
  failed_ = true;
  submissions_.Close();
  TakeSubmissions(absl::ZeroDuration());
  // Whatever it was: another group may do.
  EndAll(FinishReason::kError, absl::UnavailableError(cause.message()));
  if (on_failure_) on_failure_(cause);
}

void EngineImpl::EndAll(FinishReason reason, const absl::Status& error) {
  const std::vector<Scheduler::Event> events = scheduler_->AbortAll(reason, error);
  PublishStats();
  DeliverAll(events);
  CHECK(requests_.empty());
}

void EngineImpl::DeliverAll(const std::vector<Scheduler::Event>& events) {
  for (const Scheduler::Event& event : events) Deliver(event.handle, event.event);
  if (!events.empty() && options_.on_delivered) options_.on_delivered();
}

void EngineImpl::Deliver(Handle handle, const TokenEvent& event) {
  const auto found = requests_.find(handle);
  CHECK(found != requests_.end());
  if (event.finish_reason == FinishReason::kNone) {
    found->second(event);
    return;
  }
  const OnEvent on_event = std::move(found->second);
  requests_.erase(found);
  // Before the last event: whoever waits for it may submit the next request at once.
  CHECK(free_places_.TryPush(static_cast<int32_t>(handle & kPlaceMask)));
  on_event(event);
}

void EngineImpl::PublishStats() {
  const SchedulerStats now = scheduler_->stats();
  stats_.num_waiting = now.num_waiting;
  stats_.num_running = now.num_running;
  stats_.num_blocks = now.num_blocks;
  stats_.num_free_blocks = now.num_free_blocks;
  stats_.num_cached_blocks = now.num_cached_blocks;
  stats_.num_preemptions = now.num_preemptions;
  stats_.prompt_tokens = now.prompt_tokens;
  stats_.cached_tokens = now.cached_tokens;
  stats_.computed_tokens = now.computed_tokens;
  stats_.generated_tokens = now.generated_tokens;
  published_.Store(stats_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(
    const Options& options, std::unique_ptr<StepExecutor> executor,
    std::function<void(absl::Status)> on_failure) {
  if (options.max_queued_events < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_queued_events is out of range: value=", options.max_queued_events, " least=1"));
  }
  if (options.gather_time < absl::ZeroDuration() || options.gather_time > absl::Seconds(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gather_time is out of range: value=", absl::FormatDuration(options.gather_time),
        " least=0 most=1s"));
  }
  if (options.idle_steps && options.idle_step_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("idle_step_interval is out of range: value=",
                                                   absl::FormatDuration(options.idle_step_interval),
                                                   " must be above 0"));
  }
  SchedulerOptions scheduler_options = options.scheduler;
  ASSIGN_OR_RETURN(auto checked, Scheduler::Create(scheduler_options));
  const int64_t max_requests =
      int64_t{scheduler_options.max_waiting} + scheduler_options.max_running;
  if (max_requests > static_cast<int64_t>(kPlaceMask)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_waiting + max_running is out of range: value=", max_requests, " most=", kPlaceMask));
  }
  // The engine counts requests itself, all of them together: the scheduler never refuses one.
  scheduler_options.max_waiting = static_cast<int32_t>(max_requests);
  ASSIGN_OR_RETURN(auto scheduler, Scheduler::Create(scheduler_options));
  return std::make_unique<EngineImpl>(options, std::move(scheduler), std::move(executor),
                                      std::move(on_failure));
}

}  // namespace cairn

#include "worker/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/hash_executor.h"
#include "tests/worker/scheduler_driver.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(30);

// What one request was told. `done` is ready after its last event.
struct Stream {
  std::vector<int32_t> tokens;
  std::atomic<int> num_events = 0;
  TokenEvent last;
  std::promise<void> ended;
  std::future<void> done = ended.get_future();

  std::function<void(const TokenEvent&)> OnEvent() {
    return [this](const TokenEvent& event) {
      ASSERT_EQ(last.finish_reason, FinishReason::kNone) << "an event after the last one";
      if (event.has_token) tokens.push_back(event.token.token);
      last = event;
      ++num_events;
      if (event.finish_reason != FinishReason::kNone) ended.set_value();
    };
  }
  // The reason of its end.
  FinishReason Wait() {
    EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready) << "a request never ended";
    return last.finish_reason;
  }
};

// Lets only as many steps pass as it is told to, and can fail.
class GatedExecutor : public StepExecutor {
 public:
  struct Gate {
    static constexpr int kEndless = 1 << 30;

    void Open() { Allow(kEndless); }
    void Close() { Allow(0); }
    // Lets `steps` pass from now on.
    void Allow(int steps) {
      const std::lock_guard lock(mutex);
      num_allowed = steps;
      if (steps > 0) is_blocking = false;
      changed.notify_all();
    }
    // Waits until `steps` have come to the gate in all.
    void WaitForSteps(int steps) {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return num_entered >= steps; }));
    }
    // Waits until a step stands before the closed gate.
    void WaitForBlockedStep() {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return is_blocking; }));
    }
    std::mutex mutex;
    std::condition_variable changed;
    int num_allowed = kEndless;
    int num_entered = 0;
    int num_empty = 0;
    int num_starts = 0;  // sequences that the steps began
    bool is_blocking = false;
    bool fail = false;
  };

  GatedExecutor(const SchedulerOptions& options, Gate* gate) : model_(options), gate_(*gate) {}

  absl::StatusOr<StepResult> Run(const StepPlan& plan) override {
    {
      std::unique_lock lock(gate_.mutex);
      ++gate_.num_entered;
      if (plan.segments.empty()) ++gate_.num_empty;
      gate_.num_starts += static_cast<int>(plan.starts.size());
      gate_.is_blocking = gate_.num_allowed == 0;
      gate_.changed.notify_all();
      gate_.changed.wait(lock, [&] { return gate_.num_allowed > 0; });
      gate_.is_blocking = false;
      --gate_.num_allowed;
      if (gate_.fail) return absl::UnavailableError("rank 1 is gone");
    }
    return model_.Run(plan);
  }

  HashExecutor& model() { return model_; }

 private:
  HashExecutor model_;
  Gate& gate_;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() { options_.scheduler = SmallOptions(); }

  void Start() {
    auto executor = std::make_unique<GatedExecutor>(options_.scheduler, &gate_);
    executor_ = executor.get();
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        Engine::Start(options_, std::move(executor), [this](absl::Status status) {
          failure_ = std::move(status);
          ++num_failures_;
          failed_.set_value();
        });
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }

  Engine::Handle Submit(const GenerateRequest& request, Stream* stream) {
    const absl::StatusOr<Engine::Handle> handle = engine_->Submit(request, stream->OnEvent());
    EXPECT_TRUE(handle.ok()) << handle.status().ToString();
    return handle.value_or(0);
  }

  // Stats are published before the last event of a step is told.
  void ExpectNothingHeld() {
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_free_blocks + stats.num_cached_blocks, stats.num_blocks);
  }

  Engine::Options options_;
  GatedExecutor::Gate gate_;
  GatedExecutor* executor_ = nullptr;
  absl::Status failure_;
  int num_failures_ = 0;
  std::promise<void> failed_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, TellsOnceBehindTheEventsOfAStep) {
  std::string calls;  // of the engine's thread, which is gone when it is read
  options_.on_delivered = [&] { calls += '|'; };
  Start();
  constexpr int kRequests = 4, kTokens = 8;
  std::atomic<int> num_ended = 0;
  for (int i = 0; i < kRequests; ++i) {
    const auto handle =
        engine_->Submit(SomeRequest(SomePrompt(5, i), kTokens), [&](const TokenEvent& event) {
          calls += 'e';
          if (event.finish_reason != FinishReason::kNone) ++num_ended;
        });
    ASSERT_TRUE(handle.ok()) << handle.status().ToString();
  }
  while (num_ended < kRequests) std::this_thread::yield();
  engine_.reset();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), 'e'), kRequests * kTokens);
  EXPECT_EQ(calls.find("||"), std::string::npos) << calls;
  EXPECT_TRUE(calls.starts_with('e') && calls.ends_with('|')) << calls;
  EXPECT_NE(calls.find("eee"), std::string::npos) << calls << ": steps of several requests";
}

TEST_F(EngineTest, GivesEachRequestTheOutputOfALoneRun) {
  Start();
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 30; ++i) {
    requests.push_back(SomeRequest(SomePrompt(1 + 3 * i, i % 3), 1 + i));
    streams.push_back(std::make_unique<Stream>());
    Submit(requests.back(), streams.back().get());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(streams[i]->Wait(), FinishReason::kLength);
    EXPECT_EQ(streams[i]->tokens, HashModel::LoneRun(requests[i], options_.scheduler).tokens);
    EXPECT_EQ(streams[i]->last.usage.completion_tokens, requests[i].max_tokens);
  }
  ExpectNothingHeld();
  EXPECT_EQ(engine_->stats().generated_tokens, 30 * 31 / 2);
}

TEST_F(EngineTest, RefusesBadRequestsBeforeTheyReachTheThread) {
  Start();
  Stream stream;
  const absl::Status status =
      engine_->Submit(SomeRequest({1, 2, 1000}, 1), stream.OnEvent()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("id=1000 vocabulary=1000"));
  EXPECT_EQ(engine_->Submit(SomeRequest({}, 1), stream.OnEvent()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Submit(SomeRequest(SomePrompt(200), 1), stream.OnEvent()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, CancelsInEveryPhaseAndAccountingReturnsToTheStart) {
  options_.scheduler.max_running = 2;
  Start();
  // Before the first step, between chunks of a prompt, while tokens come.
  for (int round = 0; round < 100; ++round) {
    Stream decoding, prefilling, queued;
    gate_.Allow(0);
    const Engine::Handle first = Submit(SomeRequest(SomePrompt(3, round), 100), &decoding);
    const Engine::Handle second = Submit(SomeRequest(SomePrompt(100, round + 1), 9), &prefilling);
    const Engine::Handle third = Submit(SomeRequest(SomePrompt(5, round + 2), 100), &queued);
    gate_.Allow(round % 12);
    gate_.WaitForBlockedStep();
    engine_->Cancel(third);
    engine_->Cancel(second);
    engine_->Cancel(first);
    engine_->Cancel(first);  // twice is harmless
    gate_.Open();
    EXPECT_EQ(queued.Wait(), FinishReason::kCancelled);
    EXPECT_EQ(prefilling.Wait(), FinishReason::kCancelled);
    EXPECT_EQ(decoding.Wait(), FinishReason::kCancelled);
    EXPECT_EQ(decoding.last.usage.prompt_tokens, 3);
    EXPECT_FALSE(decoding.last.has_token);
    engine_->Cancel(first);  // so is one that has ended
    if (HasFatalFailure()) return;
  }
  Stream normal;
  const GenerateRequest request = SomeRequest(SomePrompt(9), 12);
  Submit(request, &normal);
  EXPECT_EQ(normal.Wait(), FinishReason::kLength);
  EXPECT_EQ(normal.tokens, HashModel::LoneRun(request, options_.scheduler).tokens);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ACancelTakesEffectBeforeTheNextStep) {
  Start();
  gate_.Close();
  Stream stream;
  const Engine::Handle handle = Submit(SomeRequest(SomePrompt(3), 100), &stream);
  gate_.WaitForSteps(1);
  engine_->Cancel(handle);
  gate_.Open();
  EXPECT_EQ(stream.Wait(), FinishReason::kCancelled);
  EXPECT_EQ(stream.tokens.size(), 1u);  // the step that was running
}

TEST_F(EngineTest, AnOldHandleDoesNotCancelItsSuccessor) {
  options_.scheduler.max_waiting = 1;
  options_.scheduler.max_running = 1;
  Start();
  std::vector<Engine::Handle> old;
  for (int i = 0; i < 20; ++i) {
    Stream stream;
    const Engine::Handle handle = Submit(SomeRequest(SomePrompt(3), 3), &stream);
    for (const Engine::Handle before : old) engine_->Cancel(before);
    engine_->Cancel(0);
    engine_->Cancel(~uint64_t{0});
    EXPECT_EQ(stream.Wait(), FinishReason::kLength);
    old.push_back(handle);
  }
}

TEST_F(EngineTest, ALateCancelOfAnOldHandleDoesNotUndoANewOne) {
  options_.scheduler.max_waiting = 1;
  options_.scheduler.max_running = 1;
  Start();
  std::vector<Engine::Handle> old;
  for (int i = 0; i < 2; ++i) {
    Stream stream;
    old.push_back(Submit(SomeRequest(SomePrompt(3), 3), &stream));
    EXPECT_EQ(stream.Wait(), FinishReason::kLength);
  }
  gate_.Close();
  Stream stream;
  engine_->Cancel(Submit(SomeRequest(SomePrompt(3), 100), &stream));
  for (const Engine::Handle before : old) engine_->Cancel(before);
  gate_.Open();
  EXPECT_EQ(stream.Wait(), FinishReason::kCancelled);
}

TEST_F(EngineTest, TooManyRequestsAreResourceExhausted) {
  options_.scheduler.max_waiting = 2;
  options_.scheduler.max_running = 1;
  Start();
  gate_.Close();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(std::make_unique<Stream>());
    Submit(SomeRequest(SomePrompt(3), 3), streams.back().get());
  }
  Stream refused;
  const absl::Status status =
      engine_->Submit(SomeRequest(SomePrompt(3), 3), refused.OnEvent()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("most=3"));
  gate_.Open();
  for (const auto& stream : streams) EXPECT_EQ(stream->Wait(), FinishReason::kLength);
  Stream again;
  Submit(SomeRequest(SomePrompt(3), 3), &again);
  EXPECT_EQ(again.Wait(), FinishReason::kLength);
}

TEST_F(EngineTest, AFullEventQueueIsResourceExhausted) {
  options_.max_queued_events = 2;
  Start();
  gate_.Close();
  Stream running;
  Submit(SomeRequest(SomePrompt(3), 3), &running);
  gate_.WaitForSteps(1);
  Stream first, second, refused;
  const Engine::Handle queued = Submit(SomeRequest(SomePrompt(3), 3), &first);
  Submit(SomeRequest(SomePrompt(3), 3), &second);
  EXPECT_EQ(engine_->Submit(SomeRequest(SomePrompt(3), 3), refused.OnEvent()).status().code(),
            absl::StatusCode::kResourceExhausted);
  engine_->Cancel(queued);  // finds room in any case
  gate_.Open();
  EXPECT_EQ(first.Wait(), FinishReason::kCancelled);
  EXPECT_EQ(second.Wait(), FinishReason::kLength);
  EXPECT_EQ(running.Wait(), FinishReason::kLength);
}

TEST_F(EngineTest, AFailedStepEndsEveryRequestWithTheCause) {
  Start();
  gate_.Close();
  Stream running, prefilling, queued;
  Submit(SomeRequest(SomePrompt(3), 50), &running);
  Submit(SomeRequest(SomePrompt(100), 50), &prefilling);
  gate_.WaitForSteps(1);
  Submit(SomeRequest(SomePrompt(3), 50), &queued);
  gate_.fail = true;
  gate_.Open();
  for (Stream* stream : {&running, &prefilling, &queued}) {
    EXPECT_EQ(stream->Wait(), FinishReason::kError);
    EXPECT_THAT(stream->last.error.ToString(), HasSubstr("UNAVAILABLE: rank 1 is gone"));
  }
  ASSERT_EQ(failed_.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(failure_.code(), absl::StatusCode::kUnavailable);
  ExpectNothingHeld();
  Stream late;
  const absl::Status status =
      engine_->Submit(SomeRequest(SomePrompt(3), 1), late.OnEvent()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 is gone"));
  engine_.reset();
  EXPECT_EQ(num_failures_, 1);
}

TEST_F(EngineTest, DrainingRefusesNewRequestsAndFinishesOldOnes) {
  Start();
  gate_.Close();
  Stream running, refused;
  Submit(SomeRequest(SomePrompt(3), 20), &running);
  engine_->Drain();
  EXPECT_EQ(engine_->Submit(SomeRequest(SomePrompt(3), 1), refused.OnEvent()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  gate_.Open();
  EXPECT_EQ(running.Wait(), FinishReason::kLength);
}

TEST_F(EngineTest, EndsWhatRunsWhenItGoes) {
  Start();
  Stream running, queued;
  Submit(SomeRequest(SomePrompt(3), 190), &running);
  Submit(SomeRequest(SomePrompt(30), 150), &queued);
  gate_.WaitForSteps(1);
  engine_.reset();
  EXPECT_NE(running.Wait(), FinishReason::kNone);
  EXPECT_NE(queued.Wait(), FinishReason::kNone);
}

TEST_F(EngineTest, AnIdleLeaderRunsEmptySteps) {
  options_.idle_steps = true;
  options_.idle_step_interval = absl::Milliseconds(1);
  Start();
  gate_.WaitForSteps(5);
  const std::lock_guard lock(gate_.mutex);
  EXPECT_GE(gate_.num_empty, 5);
}

TEST_F(EngineTest, AFailureIsNoticedWhenIdle) {
  options_.idle_steps = true;
  options_.idle_step_interval = absl::Milliseconds(1);
  gate_.fail = true;
  Start();
  ASSERT_EQ(failed_.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(failure_.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, WhatComesWithTheFirstRequestJoinsItsStep) {
  options_.gather_time = absl::Milliseconds(500);
  Start();
  Stream first, second;
  Submit(SomeRequest(SomePrompt(3), 4), &first);
  absl::SleepFor(absl::Milliseconds(20));
  Submit(SomeRequest(SomePrompt(5), 4), &second);
  EXPECT_EQ(first.Wait(), FinishReason::kLength);
  EXPECT_EQ(second.Wait(), FinishReason::kLength);
  const std::lock_guard lock(gate_.mutex);
  EXPECT_LE(gate_.num_entered, 5);  // four tokens each, and the end of the sequences
}

// The second takes longer to hash than the engine waits for one that is not on its way. Times on a
// busy machine vary: half of the tries must show it.
TEST_F(EngineTest, WhatIsBeingHashedJoinsTheFirstStep) {
  options_.scheduler.context_length = 200'000;
  options_.scheduler.num_blocks = 50'000;
  const GenerateRequest small = SomeRequest(SomePrompt(3), 4);
  const GenerateRequest large = SomeRequest(SomePrompt(100'000, 2), 4);
  const auto scheduler = Scheduler::Create(options_.scheduler);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status().ToString();
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 5; ++i) {
    const absl::Time begin = absl::Now();
    const PromptKeys keys = (*scheduler)->HashPrompt(large);
    shortest = std::min(shortest, absl::Now() - begin);
  }
  options_.gather_time = 0.6 * shortest;
  constexpr int kTries = 10;
  int num_joined = 0;
  for (int i = 0; i < kTries; ++i) {
    gate_.Close();
    gate_.num_starts = 0;
    Start();
    Stream first, second;
    const Engine::Handle handles[] = {Submit(small, &first), Submit(large, &second)};
    gate_.WaitForBlockedStep();
    num_joined += gate_.num_starts == 2 ? 1 : 0;
    for (const Engine::Handle handle : handles) engine_->Cancel(handle);
    gate_.Open();
    EXPECT_EQ(first.Wait(), FinishReason::kCancelled);
    EXPECT_EQ(second.Wait(), FinishReason::kCancelled);
    engine_.reset();
  }
  EXPECT_GE(num_joined, kTries / 2);
}

TEST_F(EngineTest, AnIdleEngineAloneDoesNothing) {
  Start();
  Stream stream;
  Submit(SomeRequest(SomePrompt(3), 4), &stream);
  EXPECT_EQ(stream.Wait(), FinishReason::kLength);
  absl::SleepFor(absl::Milliseconds(20));  // a loop without a wait would run thousands of steps
  const std::lock_guard lock(gate_.mutex);
  EXPECT_LE(gate_.num_entered, 5);  // four tokens, and the end of the sequence
}

TEST_F(EngineTest, HandsLogitsToTheRequestThatCapturesThem) {
  Start();
  gate_.Close();
  // The executor is idle: nothing else touches it before the gate opens.
  executor_->model().on_logits = [this](int32_t slot, int32_t position) {
    const float logit = static_cast<float>(position);
    engine_->OnLogits(slot, position, std::span(&logit, 1));
  };
  std::vector<int32_t> positions;
  GenerateRequest request = SomeRequest(SomePrompt(30), 3);
  request.capture_logits = [&](int32_t position, std::span<const float> logits) {
    EXPECT_EQ(logits[0], static_cast<float>(position));
    positions.push_back(position);
  };
  Stream capturing, other;
  Submit(request, &capturing);
  Submit(SomeRequest(SomePrompt(20, 2), 3), &other);
  gate_.Open();
  EXPECT_EQ(capturing.Wait(), FinishReason::kLength);
  EXPECT_EQ(other.Wait(), FinishReason::kLength);
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < 32; ++i) expected.push_back(i);  // the last token is not computed
  EXPECT_EQ(positions, expected);
}

TEST_F(EngineTest, ACallbackMaySubmitAndCancel) {
  Start();
  Stream first, second;
  Engine::Handle handle = 0;
  std::promise<void> handed_over;
  handle = *engine_->Submit(
      SomeRequest(SomePrompt(3), 100), [&, on_event = first.OnEvent()](const TokenEvent& event) {
        if (event.finish_reason == FinishReason::kNone && first.num_events == 0) {
          handed_over.get_future().wait();
          Submit(SomeRequest(SomePrompt(5), 2), &second);
          engine_->Cancel(handle);
        }
        on_event(event);
      });
  handed_over.set_value();
  EXPECT_EQ(first.Wait(), FinishReason::kCancelled);
  EXPECT_EQ(second.Wait(), FinishReason::kLength);
}

TEST_F(EngineTest, ManyThreadsSubmitAndCancelAtOnce) {
  options_.scheduler.num_blocks = 40;
  Start();
  std::atomic<int> num_finished = 0, num_cancelled = 0;
  const uint32_t first_seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << first_seed);
  const auto client = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 80; ++i) {
      Stream stream;
      const auto length = static_cast<int32_t>(1 + random() % 60);
      GenerateRequest request = SomeRequest(SomePrompt(length, random() % 3), 1 + random() % 30);
      const Engine::Handle handle = Submit(request, &stream);
      const bool cancel = random() % 3 == 0;
      if (cancel) engine_->Cancel(handle);
      const EngineStats stats = engine_->stats();
      EXPECT_LE(stats.num_free_blocks + stats.num_cached_blocks, stats.num_blocks);
      const FinishReason reason = stream.Wait();
      if (reason == FinishReason::kCancelled) {
        EXPECT_TRUE(cancel);
        ++num_cancelled;
        continue;
      }
      EXPECT_EQ(stream.tokens, HashModel::LoneRun(request, options_.scheduler).tokens);
      ++num_finished;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) threads.emplace_back(client, first_seed + i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_finished, 300);
  EXPECT_GT(num_cancelled, 20);
  ExpectNothingHeld();
}

TEST(EngineOptionsTest, AreCheckedByName) {
  Engine::Options options;
  options.scheduler = SmallOptions();
  options.max_queued_events = 0;
  const auto start = [&] {
    return Engine::Start(options, std::make_unique<HashExecutor>(options.scheduler), nullptr)
        .status();
  };
  EXPECT_THAT(std::string(start().message()), HasSubstr("max_queued_events"));
  options.max_queued_events = 1;
  for (const absl::Duration wrong : {absl::Nanoseconds(-1), absl::Seconds(1.1)}) {
    options.gather_time = wrong;
    EXPECT_THAT(std::string(start().message()), HasSubstr("gather_time"));
  }
  options.gather_time = absl::ZeroDuration();
  options.scheduler.num_blocks = 0;
  EXPECT_THAT(std::string(start().message()), HasSubstr("num_blocks"));
  options.scheduler.num_blocks = 1;
  options.scheduler.max_waiting = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(std::string(start().message()), HasSubstr("max_waiting"));
  options.scheduler.max_waiting = 1;
  options.idle_steps = true;
  options.idle_step_interval = absl::ZeroDuration();
  EXPECT_THAT(std::string(start().message()), HasSubstr("idle_step_interval"));
  options.idle_steps = false;
  EXPECT_TRUE(start().ok());
}

}  // namespace
}  // namespace cairn

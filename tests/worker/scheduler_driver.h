// Drives a scheduler with a HashExecutor and writes down what each request got.
//
// Thread: one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/key.h"
#include "tests/worker/hash_executor.h"
#include "worker/scheduler.h"

namespace cairn {

inline SchedulerOptions SmallOptions() {
  SchedulerOptions options;
  options.num_blocks = 64;
  options.block_tokens = 4;
  options.max_running = 8;
  options.max_step_tokens = 16;
  options.max_waiting = 1000;
  options.context_length = 200;
  options.vocab_size = 1000;
  options.identity_root = std::string(AsBytes(IdentityRoot({.weights = "test"})));
  return options;
}

// `length` tokens that depend on `flavour`; equal flavours start alike.
inline std::vector<int32_t> SomePrompt(int32_t length, int32_t flavour = 1) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((flavour * 131 + i * 17) % 1000);
  return prompt;
}

inline GenerateRequest SomeRequest(std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 7;
  return request;
}

class SchedulerDriver {
 public:
  struct Record {
    GenerateRequest request;
    std::vector<int32_t> tokens;
    FinishReason finish_reason = FinishReason::kNone;
    absl::Status error;
    Usage usage;
    int64_t first_step = -1, last_step = -1;  // that gave a token
    int64_t longest_gap = 0;                  // in steps, between two tokens
  };

  explicit SchedulerDriver(const SchedulerOptions& options)
      : options_(options), executor_(options) {
    absl::StatusOr<std::unique_ptr<Scheduler>> created = Scheduler::Create(options);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    scheduler_ = *std::move(created);
  }

  absl::Status TryAdd(uint64_t handle, const GenerateRequest& request) {
    return scheduler_->Add(handle, request, scheduler_->HashPrompt(request));
  }
  uint64_t Add(const GenerateRequest& request) {
    const uint64_t handle = next_handle_++;
    const absl::Status status = TryAdd(handle, request);
    EXPECT_TRUE(status.ok()) << status.ToString();
    records_[handle].request = request;
    return handle;
  }

  // One step; the plan it ran.
  StepPlan Step() {
    StepPlan plan = scheduler_->Plan();
    Finish(plan);
    return plan;
  }

  // Runs and applies a plan.
  void Finish(const StepPlan& plan) {
    const absl::StatusOr<StepResult> result = executor_.Run(plan);
    ASSERT_TRUE(result.ok()) << "step " << num_steps_ << ": " << result.status().ToString();
    for (const Scheduler::Event& event : scheduler_->Apply(*result)) Take(event);
    ++num_steps_;
  }

  // Steps until nothing is left to do. Fails if that takes more than `most_steps`.
  void RunAll(int64_t most_steps = 100000) {
    for (int64_t i = 0; scheduler_->HasWork(); ++i) {
      ASSERT_LT(i, most_steps) << "no end in sight";
      Step();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  // The request's output is that of a lone run.
  void ExpectLoneOutput(uint64_t handle) {
    const Record& record = records_.at(handle);
    const HashModel::Output lone = HashModel::LoneRun(record.request, options_);
    EXPECT_EQ(record.tokens, lone.tokens) << "request " << handle;
    EXPECT_EQ(record.finish_reason, lone.finish_reason) << "request " << handle;
    EXPECT_EQ(record.usage.completion_tokens, static_cast<int32_t>(lone.tokens.size()));
    EXPECT_EQ(record.usage.prompt_tokens, static_cast<int32_t>(record.request.prompt.size()));
  }

  // Nothing is held and nobody is served.
  void ExpectIdle() {
    const SchedulerStats stats = scheduler_->stats();
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_free_blocks + stats.num_cached_blocks, stats.num_blocks);
    EXPECT_EQ(executor_.num_active_slots(), 0);
    EXPECT_FALSE(scheduler_->HasWork());
  }

  Scheduler& scheduler() { return *scheduler_; }
  HashExecutor& executor() { return executor_; }
  const HashExecutor& executor() const { return executor_; }
  const Record& record(uint64_t handle) const { return records_.at(handle); }
  int64_t num_steps() const { return num_steps_; }

 private:
  void Take(const Scheduler::Event& event) {
    Record& record = records_.at(event.handle);
    ASSERT_EQ(record.finish_reason, FinishReason::kNone) << "an event after the last one";
    if (event.event.has_token) {
      record.tokens.push_back(event.event.token.token);
      if (record.first_step < 0) record.first_step = num_steps_;
      if (record.last_step >= 0) {
        record.longest_gap = std::max(record.longest_gap, num_steps_ - record.last_step);
      }
      record.last_step = num_steps_;
    }
    record.finish_reason = event.event.finish_reason;
    record.error = event.event.error;
    record.usage = event.event.usage;
  }

  const SchedulerOptions options_;
  HashExecutor executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<uint64_t, Record> records_;
  uint64_t next_handle_ = 1;
  int64_t num_steps_ = 0;
};

}  // namespace cairn

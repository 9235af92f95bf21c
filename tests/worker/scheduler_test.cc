#include "worker/scheduler.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/scheduler_driver.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int32_t Rows(const StepPlan& plan) {
  int32_t rows = 0;
  for (const StepSegment& segment : plan.segments) rows += segment.num_tokens;
  return rows;
}

std::vector<int32_t> RowsOfSegments(const StepPlan& plan) {
  std::vector<int32_t> rows;
  for (const StepSegment& segment : plan.segments) rows.push_back(segment.num_tokens);
  return rows;
}

TEST(SchedulerTest, ChecksItsOptionsByName) {
  const auto message = [](auto spoil) {
    SchedulerOptions options = SmallOptions();
    spoil(&options);
    return std::string(Scheduler::Create(options).status().message());
  };
  using Options = SchedulerOptions;
  EXPECT_THAT(message([](Options* o) { o->num_blocks = 0; }), HasSubstr("num_blocks"));
  EXPECT_THAT(message([](Options* o) { o->block_tokens = 0; }), HasSubstr("block_tokens"));
  EXPECT_THAT(message([](Options* o) { o->max_running = -1; }), HasSubstr("max_running"));
  EXPECT_THAT(message([](Options* o) { o->max_step_tokens = 0; }), HasSubstr("max_step_tokens"));
  EXPECT_THAT(message([](Options* o) { o->max_waiting = 0; }), HasSubstr("max_waiting"));
  EXPECT_THAT(message([](Options* o) { o->context_length = 1; }), HasSubstr("context_length"));
  EXPECT_THAT(message([](Options* o) { o->vocab_size = 0; }), HasSubstr("vocab_size"));
  EXPECT_THAT(message([](Options* o) { o->identity_root = "short"; }), HasSubstr("block key"));
  EXPECT_EQ(message([](Options* o) {
              o->identity_root = "";
              o->prefix_cache = false;
            }),
            "");
}

TEST(SchedulerTest, CutsAPromptIntoChunksAndSamplesAtItsEndOnly) {
  SchedulerDriver driver(SmallOptions());
  const uint64_t handle = driver.Add(SomeRequest(SomePrompt(40), 3));
  EXPECT_THAT(RowsOfSegments(driver.Step()), ElementsAre(16));
  EXPECT_THAT(RowsOfSegments(driver.Step()), ElementsAre(16));
  EXPECT_TRUE(driver.record(handle).tokens.empty());
  const StepPlan last = driver.Step();
  EXPECT_THAT(RowsOfSegments(last), ElementsAre(8));
  EXPECT_TRUE(last.segments[0].sample);
  EXPECT_EQ(driver.record(handle).tokens.size(), 1u);
  driver.RunAll();
  driver.ExpectLoneOutput(handle);
  driver.ExpectIdle();
}

TEST(SchedulerTest, ServesDecodesFirstAndSharesTheRestAmongPrefills) {
  SchedulerDriver driver(SmallOptions());
  driver.Add(SomeRequest(SomePrompt(2, 1), 100));
  driver.Add(SomeRequest(SomePrompt(3, 2), 100));
  driver.Step();
  driver.Add(SomeRequest(SomePrompt(9, 3), 10));
  driver.Add(SomeRequest(SomePrompt(30, 4), 10));
  EXPECT_THAT(RowsOfSegments(driver.Step()), ElementsAre(1, 1, 9, 5));
  EXPECT_THAT(RowsOfSegments(driver.Step()), ElementsAre(1, 1, 1, 13));
}

// One long prompt and a steady flow of others: the stream goes on with every step, and no step is
// longer than the budget.
TEST(SchedulerTest, TheLongestGapOfAStreamIsOneBudget) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 400;
  options.context_length = 1000;
  SchedulerDriver driver(options);
  const uint64_t stream = driver.Add(SomeRequest(SomePrompt(4, 1), 150));
  driver.Step();
  const uint64_t large = driver.Add(SomeRequest(SomePrompt(200, 2), 5));
  std::vector<uint64_t> others;
  for (int i = 0; i < 100; ++i) {
    if (i % 4 == 0) others.push_back(driver.Add(SomeRequest(SomePrompt(20, 3 + i), 3)));
    EXPECT_LE(Rows(driver.Step()), options.max_step_tokens);
  }
  driver.RunAll();
  EXPECT_EQ(driver.record(stream).longest_gap, 1);
  EXPECT_LE(driver.executor().longest_step_rows(), options.max_step_tokens);
  driver.ExpectLoneOutput(stream);
  driver.ExpectLoneOutput(large);
  for (const uint64_t other : others) driver.ExpectLoneOutput(other);
}

TEST(SchedulerTest, NoMoreSequencesRunThanAStepHasRows) {
  SchedulerOptions options = SmallOptions();
  options.max_step_tokens = 2;
  SchedulerDriver driver(options);
  std::vector<uint64_t> handles;
  for (int i = 0; i < 5; ++i) handles.push_back(driver.Add(SomeRequest(SomePrompt(3, i), 10)));
  while (driver.scheduler().HasWork()) {
    EXPECT_LE(Rows(driver.Step()), 2);
    EXPECT_LE(driver.scheduler().stats().num_running, 2);
  }
  for (const uint64_t handle : handles) {
    EXPECT_EQ(driver.record(handle).longest_gap, 1);
    driver.ExpectLoneOutput(handle);
  }
}

TEST(SchedulerTest, StopsAtAStopIdAndCountsIt) {
  SchedulerDriver driver(SmallOptions());
  GenerateRequest request = SomeRequest(SomePrompt(5), 20);
  const std::vector<int32_t> free_run = HashModel::LoneRun(request, SmallOptions()).tokens;
  request.stop_ids = {free_run[7]};
  const uint64_t handle = driver.Add(request);
  driver.RunAll();
  const SchedulerDriver::Record& record = driver.record(handle);
  EXPECT_EQ(record.finish_reason, FinishReason::kStop);
  EXPECT_EQ(record.tokens.back(), free_run[7]);
  EXPECT_EQ(record.tokens.size(), 8u);
  EXPECT_EQ(record.usage.completion_tokens, 8);
}

TEST(SchedulerTest, BansStopIdsBeforeMinTokensOnly) {
  SchedulerOptions options = SmallOptions();
  options.vocab_size = 4;
  SchedulerDriver driver(options);
  GenerateRequest request = SomeRequest({1, 2, 3}, 50);
  request.stop_ids = {0, 1, 2};
  request.min_tokens = 20;
  const uint64_t handle = driver.Add(request);
  driver.RunAll();
  const std::vector<int32_t>& tokens = driver.record(handle).tokens;
  ASSERT_GT(tokens.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(tokens[i], 3);
  EXPECT_EQ(driver.record(handle).finish_reason, FinishReason::kStop);
  driver.ExpectLoneOutput(handle);
}

TEST(SchedulerTest, AnIgnoredEosIsNeitherBannedNorAStop) {
  SchedulerDriver driver(SmallOptions());
  GenerateRequest request = SomeRequest(SomePrompt(5), 20);
  request.min_tokens = 20;  // and no stop ids
  const uint64_t handle = driver.Add(request);
  EXPECT_TRUE(driver.Step().starts[0].banned_ids.empty());
  driver.RunAll();
  EXPECT_EQ(driver.record(handle).finish_reason, FinishReason::kLength);
  EXPECT_EQ(driver.record(handle).tokens.size(), 20u);
}

// Prompts around the window: one that fits runs up to its end, one that does not is refused.
TEST(SchedulerTest, TheContextEndsARequestWithLength) {
  SchedulerOptions options = SmallOptions();
  options.context_length = 50;
  SchedulerDriver driver(options);
  EXPECT_EQ(driver.scheduler().max_request_tokens(), 50);
  for (const int32_t length : {49, 48, 10}) {
    const uint64_t handle = driver.Add(SomeRequest(SomePrompt(length), 1000));
    driver.RunAll(200);
    EXPECT_EQ(driver.record(handle).finish_reason, FinishReason::kLength);
    EXPECT_EQ(driver.record(handle).tokens.size(), static_cast<size_t>(50 - length));
  }
  for (const int32_t length : {50, 51, 500}) {
    const absl::Status status = driver.TryAdd(1000 + length, SomeRequest(SomePrompt(length), 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("prompt_tokens=" + std::to_string(length) + " context_tokens=50"));
  }
}

// A pool of 8 blocks under a context of 64 blocks.
SchedulerOptions TinyPool() {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 8;
  options.context_length = 64 * options.block_tokens;
  return options;
}

TEST(SchedulerTest, ARequestLargerThanThePoolIsRefusedAndHoldsNobodyUp) {
  SchedulerDriver driver(TinyPool());
  EXPECT_EQ(driver.scheduler().max_request_tokens(), 33);
  const absl::Status status = driver.TryAdd(999, SomeRequest(SomePrompt(33), 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("prompt_tokens=33 pool_tokens=32"));
  std::vector<uint64_t> handles;
  for (int i = 0; i < 10; ++i) handles.push_back(driver.Add(SomeRequest(SomePrompt(4, i), 1)));
  driver.RunAll(20);
  for (const uint64_t handle : handles) driver.ExpectLoneOutput(handle);
}

TEST(SchedulerTest, ARequestThatOutgrowsThePoolAloneEndsWithLength) {
  for (const int32_t length : {20, 31, 32}) {
    SchedulerDriver driver(TinyPool());
    const uint64_t handle = driver.Add(SomeRequest(SomePrompt(length), 200));
    driver.RunAll(100);
    EXPECT_EQ(driver.record(handle).finish_reason, FinishReason::kLength);
    EXPECT_EQ(driver.record(handle).tokens.size(), static_cast<size_t>(33 - length));
    driver.ExpectLoneOutput(handle);
  }
}

TEST(SchedulerTest, TwoThatFitSinglyButNotTogetherBothEnd) {
  SchedulerDriver driver(TinyPool());
  const uint64_t first = driver.Add(SomeRequest(SomePrompt(12, 1), 20));
  const uint64_t second = driver.Add(SomeRequest(SomePrompt(12, 2), 20));
  driver.RunAll(200);
  driver.ExpectLoneOutput(first);
  driver.ExpectLoneOutput(second);
  EXPECT_EQ(driver.record(first).usage.num_preemptions, 0);
  EXPECT_GE(driver.record(second).usage.num_preemptions, 1);
  driver.ExpectIdle();
}

TEST(SchedulerTest, ASequenceEntersBesideOthersOnlyIfOneBlockIsLeft) {
  for (const auto& [length, num_running] : std::vector<std::pair<int32_t, int32_t>>{
           {20, 2}, {21, 1}, {24, 1}}) {  // five or six blocks, where six are left
    SchedulerDriver driver(TinyPool());
    driver.Add(SomeRequest(SomePrompt(4, 1), 4));
    driver.Step();
    const uint64_t next = driver.Add(SomeRequest(SomePrompt(length, 2), 2));
    driver.Step();
    EXPECT_EQ(driver.scheduler().stats().num_running, num_running) << length;
    driver.RunAll();
    driver.ExpectLoneOutput(next);
  }
}

TEST(SchedulerTest, PreemptsTheYoungestWhenBlocksRunOut) {
  SchedulerDriver driver(TinyPool());
  std::vector<uint64_t> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(driver.Add(SomeRequest(SomePrompt(4, i), 20)));
  while (driver.scheduler().stats().num_preemptions == 0) driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, 2);
  driver.RunAll();
  EXPECT_EQ(driver.record(handles[0]).usage.num_preemptions, 0);
  EXPECT_GE(driver.record(handles[2]).usage.num_preemptions, 1);
  for (const uint64_t handle : handles) driver.ExpectLoneOutput(handle);
}

TEST(SchedulerTest, APreemptedSequenceComesBackWithItsPromptApartFromItsOutput) {
  SchedulerOptions options = TinyPool();
  options.prefix_cache = false;
  SchedulerDriver driver(options);
  driver.Add(SomeRequest(SomePrompt(4, 1), 28));
  GenerateRequest request = SomeRequest(SomePrompt(6, 2), 20);
  request.stop_ids = {5};
  request.min_tokens = 9;
  const uint64_t victim = driver.Add(request);
  driver.Step();
  std::vector<SequenceStart> again;
  while (driver.scheduler().HasWork()) {
    const size_t num_tokens = driver.record(victim).tokens.size();
    for (const SequenceStart& start : driver.Step().starts) {
      again.push_back(start);
      EXPECT_EQ(start.tokens.size(), 6 + num_tokens);
      EXPECT_EQ(start.num_prompt_tokens, 6);
      EXPECT_EQ(start.num_cached_tokens, 0);
      EXPECT_EQ(start.banned_before, 6 + 9);
      EXPECT_THAT(start.banned_ids, ElementsAre(5));
    }
  }
  EXPECT_GE(again.size(), 1u);
  EXPECT_EQ(driver.record(victim).usage.num_preemptions, static_cast<int32_t>(again.size()));
  driver.ExpectLoneOutput(victim);
}

TEST(SchedulerTest, AVictimInMidPrefillStartsAnewAndIsExact) {
  SchedulerOptions options = TinyPool();
  options.max_step_tokens = 3;
  SchedulerDriver driver(options);
  const uint64_t old = driver.Add(SomeRequest(SomePrompt(7, 1), 20));
  while (driver.record(old).tokens.empty()) driver.Step();
  const uint64_t young = driver.Add(SomeRequest(SomePrompt(20, 2), 3));
  while (driver.scheduler().stats().num_preemptions == 0) driver.Step();
  EXPECT_TRUE(driver.record(young).tokens.empty());
  driver.RunAll();
  EXPECT_GE(driver.record(young).usage.num_preemptions, 1);
  driver.ExpectLoneOutput(old);
  driver.ExpectLoneOutput(young);
}

// Old requests press on the pool until each young one has been thrown out at least twice.
TEST(SchedulerTest, RequestsPreemptedTwiceGiveTheirOutputOnce) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 12;
  options.max_running = 4;
  SchedulerDriver driver(options);
  int num_compared = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> handles;
    for (int i = 0; i < 4; ++i) {
      GenerateRequest request = SomeRequest(SomePrompt(3 + i, 4 * round + i), 40);
      request.sampling.seed = round;
      handles.push_back(driver.Add(request));
    }
    driver.RunAll();
    for (const uint64_t handle : handles) {
      driver.ExpectLoneOutput(handle);
      if (driver.record(handle).usage.num_preemptions >= 2) ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 10);
  driver.ExpectIdle();
}

TEST(SchedulerTest, CancelsInEveryPhaseAndAccountingReturnsToTheStart) {
  SchedulerOptions options = SmallOptions();
  options.max_running = 2;
  SchedulerDriver driver(options);
  for (int round = 0; round < 100; ++round) {
    const uint64_t decoding = driver.Add(SomeRequest(SomePrompt(3, round), 100));
    const uint64_t prefilling = driver.Add(SomeRequest(SomePrompt(100, round + 1), 10));
    const uint64_t queued = driver.Add(SomeRequest(SomePrompt(3, round + 2), 100));
    for (int i = 0; i < round % 6; ++i) driver.Step();
    const StepPlan plan = driver.scheduler().Plan();
    // Half of them while the ranks compute.
    if (round % 2 == 0) driver.Finish(plan);
    for (const uint64_t handle : {decoding, prefilling, queued}) {
      EXPECT_TRUE(driver.scheduler().Cancel(handle).has_value());
      EXPECT_FALSE(driver.scheduler().Cancel(handle).has_value());
    }
    if (round % 2 != 0) driver.Finish(plan);
    driver.RunAll(3);
    driver.ExpectIdle();
  }
  const uint64_t normal = driver.Add(SomeRequest(SomePrompt(9), 12));
  driver.RunAll();
  driver.ExpectLoneOutput(normal);
}

TEST(SchedulerTest, ACancelSaysWhatWasUsed) {
  SchedulerDriver driver(SmallOptions());
  const uint64_t handle = driver.Add(SomeRequest(SomePrompt(5), 50));
  for (int i = 0; i < 4; ++i) driver.Step();
  const std::optional<Usage> usage = driver.scheduler().Cancel(handle);
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->prompt_tokens, 5);
  EXPECT_EQ(usage->completion_tokens, 4);
  EXPECT_FALSE(driver.scheduler().Cancel(12345).has_value());
}

TEST(SchedulerTest, RefusesMoreWaitingThanItsLimit) {
  SchedulerOptions options = SmallOptions();
  options.max_waiting = 2;
  SchedulerDriver driver(options);
  driver.Add(SomeRequest(SomePrompt(3), 3));
  driver.Add(SomeRequest(SomePrompt(3), 3));
  const absl::Status status = driver.TryAdd(99, SomeRequest(SomePrompt(3), 3));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("most=2"));
}

// One bad request among good ones changes nothing for them.
TEST(SchedulerTest, ABadRequestLeavesOthersUntouched) {
  SchedulerDriver driver(SmallOptions());
  const uint64_t good = driver.Add(SomeRequest(SomePrompt(5), 20));
  driver.Step();
  GenerateRequest bad = SomeRequest(SomePrompt(5), 20);
  bad.sampling.logit_bias = {{1000, 1.0f}};
  EXPECT_EQ(driver.TryAdd(99, bad).code(), absl::StatusCode::kInvalidArgument);
  driver.RunAll();
  driver.ExpectLoneOutput(good);
}

// A model whose logits are no numbers fails the request, and nobody else's.
TEST(SchedulerTest, ARequestThatGetsNoTokenEndsAloneWithAnError) {
  SchedulerDriver driver(SmallOptions());
  const uint64_t good = driver.Add(SomeRequest(SomePrompt(5), 20));
  GenerateRequest request = SomeRequest(SomePrompt(9, 2), 20);
  request.sampling.seed = 99;
  int num_before = 3;
  driver.executor().gives_nothing = [&](const SequenceStart& start) {
    return start.sampling.seed == 99 && num_before-- == 0;
  };
  const uint64_t bad = driver.Add(request);
  driver.RunAll();
  driver.ExpectLoneOutput(good);
  const SchedulerDriver::Record& record = driver.record(bad);
  EXPECT_EQ(record.finish_reason, FinishReason::kError);
  EXPECT_EQ(record.error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(record.error.message()), HasSubstr("no finite logit"));
  EXPECT_THAT(std::string(record.error.message()), HasSubstr("position=12"));
  EXPECT_EQ(record.tokens.size(), 3u);
  EXPECT_EQ(record.usage.completion_tokens, 3);
  EXPECT_EQ(driver.scheduler().stats().generated_tokens, 23);
  driver.ExpectIdle();
}

TEST(SchedulerTest, AbortEndsAllInOrderOfArrivalAndForgetsTheirKv) {
  SchedulerOptions options = SmallOptions();
  options.max_running = 1;
  SchedulerDriver driver(options);
  const uint64_t first = driver.Add(SomeRequest(SomePrompt(9), 20));
  const uint64_t second = driver.Add(SomeRequest(SomePrompt(9), 20));
  for (int i = 0; i < 3; ++i) driver.Step();
  driver.scheduler().Plan();  // the step that fails
  const std::vector<Scheduler::Event> events =
      driver.scheduler().AbortAll(FinishReason::kError, absl::UnavailableError("rank 1 is gone"));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].handle, first);
  EXPECT_EQ(events[1].handle, second);
  EXPECT_EQ(events[0].event.finish_reason, FinishReason::kError);
  EXPECT_EQ(events[0].event.error, absl::UnavailableError("rank 1 is gone"));
  EXPECT_EQ(events[0].event.usage.completion_tokens, 3);
  const SchedulerStats stats = driver.scheduler().stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_FALSE(driver.scheduler().HasWork());
}

TEST(SchedulerTest, SeedAndChoiceDecideWhateverTheNeighbours) {
  SchedulerDriver driver(SmallOptions());
  std::vector<uint64_t> handles;
  for (uint32_t i = 0; i < 8; ++i) {
    GenerateRequest request = SomeRequest(SomePrompt(6), 10);
    request.sampling.seed = i / 4;
    request.sampling.choice = i % 4;
    handles.push_back(driver.Add(request));
  }
  handles.push_back(driver.Add(driver.record(handles[2]).request));
  driver.RunAll();
  std::set<std::vector<int32_t>> outputs;
  for (const uint64_t handle : handles) {
    driver.ExpectLoneOutput(handle);
    outputs.insert(driver.record(handle).tokens);
  }
  EXPECT_EQ(outputs.size(), 8u);
  EXPECT_EQ(driver.record(handles[8]).tokens, driver.record(handles[2]).tokens);
}

TEST(SchedulerTest, FindsTheRequestOfASlot) {
  SchedulerDriver driver(SmallOptions());
  GenerateRequest request = SomeRequest(SomePrompt(5), 3);
  request.id = "mine";
  request.capture_logits = [](int32_t, std::span<const float>) {};
  driver.Add(request);
  const StepPlan plan = driver.Step();
  ASSERT_EQ(plan.segments.size(), 1u);
  EXPECT_TRUE(plan.segments[0].capture_logits);
  ASSERT_NE(driver.scheduler().RequestOfSlot(plan.segments[0].slot), nullptr);
  EXPECT_EQ(driver.scheduler().RequestOfSlot(plan.segments[0].slot)->id, "mine");
  EXPECT_EQ(driver.scheduler().RequestOfSlot(7), nullptr);
  EXPECT_EQ(driver.scheduler().RequestOfSlot(-1), nullptr);
  EXPECT_EQ(driver.scheduler().RequestOfSlot(1000), nullptr);
}

}  // namespace
}  // namespace cairn

// What the scheduler shares and in which order it lets requests in: prefixes, single flight,
// fairness.

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/scheduler_driver.h"

namespace cairn {
namespace {

constexpr int32_t kB = 4;  // block_tokens of SmallOptions

// A prompt that ends in the middle of a block, at its end, or just after it: the second run finds
// all of its full blocks, and of the last token's block what comes before that token.
TEST(SchedulerSharingTest, AHitIsAsLongAsTheFullBlocksAndNeverTheWholePrompt) {
  for (int32_t k = 1; k <= 4; ++k) {
    struct Case {
      int32_t length, cached;
    };
    for (const Case& c : {Case{k * kB - 1, (k - 1) * kB}, Case{k * kB, k * kB - 1},
                          Case{k * kB + 1, k * kB}, Case{k * kB + 2, k * kB}}) {
      SchedulerDriver driver(SmallOptions());
      for (int run = 0; run < 3; ++run) {
        const uint64_t handle = driver.Add(SomeRequest(SomePrompt(c.length), 1));
        driver.RunAll();
        driver.ExpectLoneOutput(handle);
        EXPECT_EQ(driver.record(handle).usage.cached_tokens, run == 0 ? 0 : c.cached)
            << "prompt of " << c.length;
      }
      driver.ExpectIdle();
    }
  }
}

TEST(SchedulerSharingTest, APartlyEqualBlockIsReusedByCopy) {
  SchedulerDriver driver(SmallOptions());
  const std::vector<int32_t> prompt = SomePrompt(12);
  driver.Add(SomeRequest(prompt, 1));
  driver.RunAll();
  for (int32_t equal = 4; equal < 12; ++equal) {
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + equal);
    for (int32_t i = equal; i < 14; ++i) other.push_back(900 + equal);
    const uint64_t handle = driver.Add(SomeRequest(other, 5));
    driver.RunAll();
    EXPECT_EQ(driver.record(handle).usage.cached_tokens, equal);
    driver.ExpectLoneOutput(handle);
  }
}

TEST(SchedulerSharingTest, AConversationFindsItsOwnAnswersAgain) {
  SchedulerDriver driver(SmallOptions());
  std::vector<int32_t> history = SomePrompt(10);
  for (int turn = 0; turn < 5; ++turn) {
    const uint64_t handle = driver.Add(SomeRequest(history, 9));
    driver.RunAll();
    driver.ExpectLoneOutput(handle);
    if (turn > 0) {
      // All full blocks of the turn before, whose last token was not computed.
      const auto before = static_cast<int32_t>(history.size()) - 3;
      EXPECT_GE(driver.record(handle).usage.cached_tokens, (before - 1) / kB * kB);
    }
    const std::vector<int32_t>& answer = driver.record(handle).tokens;
    history.insert(history.end(), answer.begin(), answer.end());
    for (int32_t i = 0; i < 3; ++i) history.push_back(500 + turn);
  }
}

TEST(SchedulerSharingTest, SaltsAreKeptApartAndEachFindsItsOwn) {
  SchedulerDriver driver(SmallOptions());
  for (const auto& [salt, cached] : std::vector<std::pair<std::string, int32_t>>{
           {"a", 0}, {"b", 0}, {"", 0}, {"a", 16}, {"b", 16}, {"", 16}}) {
    GenerateRequest request = SomeRequest(SomePrompt(17), 2);
    request.cache_salt = salt;
    const uint64_t handle = driver.Add(request);
    driver.RunAll();
    EXPECT_EQ(driver.record(handle).usage.cached_tokens, cached) << "salt " << salt;
    driver.ExpectLoneOutput(handle);
  }
}

TEST(SchedulerSharingTest, ARequestWithoutTheCacheNeitherTakesNorLeavesAnything) {
  SchedulerDriver driver(SmallOptions());
  GenerateRequest apart = SomeRequest(SomePrompt(17), 2);
  apart.use_prefix_cache = false;
  driver.Add(apart);
  driver.RunAll();
  EXPECT_EQ(driver.scheduler().stats().num_cached_blocks, 0);
  driver.Add(SomeRequest(SomePrompt(17), 2));
  driver.RunAll();
  EXPECT_GT(driver.scheduler().stats().num_cached_blocks, 0);
  const uint64_t again = driver.Add(apart);
  driver.RunAll();
  EXPECT_EQ(driver.record(again).usage.cached_tokens, 0);
  EXPECT_EQ(driver.scheduler().stats().cached_tokens, 0);
}

TEST(SchedulerSharingTest, TheCacheCanBeSwitchedOff) {
  SchedulerOptions options = SmallOptions();
  options.prefix_cache = false;
  SchedulerDriver driver(options);
  for (int run = 0; run < 2; ++run) {
    const uint64_t handle = driver.Add(SomeRequest(SomePrompt(17), 2));
    driver.RunAll();
    EXPECT_EQ(driver.record(handle).usage.cached_tokens, 0);
  }
  EXPECT_EQ(driver.scheduler().stats().num_cached_blocks, 0);
}

TEST(SchedulerSharingTest, AnEvictedPrefixIsComputedAnew) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 10;
  SchedulerDriver driver(options);
  driver.Add(SomeRequest(SomePrompt(17, 1), 2));
  driver.RunAll();
  driver.Add(SomeRequest(SomePrompt(33, 2), 2));  // takes nine of the ten blocks
  driver.RunAll();
  const uint64_t handle = driver.Add(SomeRequest(SomePrompt(17, 1), 2));
  driver.RunAll();
  // Evicted from the end: one block of the old prefix may be left, not more.
  EXPECT_LE(driver.record(handle).usage.cached_tokens, kB);
  driver.ExpectLoneOutput(handle);
}

// The second of two equal requests computes the last block of the prompt for itself. When the first
// one's block, which stands for both in the index, is evicted, the second one's takes its place.
TEST(SchedulerSharingTest, AnEqualBlockTakesThePlaceOfAnEvictedOne) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 8;
  SchedulerDriver driver(options);
  driver.Add(SomeRequest(SomePrompt(8), 1));
  driver.RunAll();
  const uint64_t second = driver.Add(SomeRequest(SomePrompt(8), 12));
  while (driver.record(second).tokens.size() < 6) driver.Step();
  driver.Add(SomeRequest(SomePrompt(9, 2), 4));  // takes the last free blocks
  driver.RunAll();
  std::vector<int32_t> history = SomePrompt(8);
  const std::vector<int32_t>& answer = driver.record(second).tokens;
  history.insert(history.end(), answer.begin(), answer.begin() + 5);
  const uint64_t third = driver.Add(SomeRequest(history, 1));
  driver.RunAll();
  EXPECT_EQ(driver.record(third).usage.cached_tokens, 12);
  driver.ExpectLoneOutput(third);
}

TEST(SchedulerSharingTest, EqualPromptsAtOnceComputeThePrefixOnce) {
  SchedulerDriver driver(SmallOptions());
  std::vector<uint64_t> handles;
  for (int i = 0; i < 4; ++i) handles.push_back(driver.Add(SomeRequest(SomePrompt(41), 2)));
  const uint64_t stranger = driver.Add(SomeRequest(SomePrompt(6, 9), 2));
  for (int i = 0; i < 3; ++i) driver.Step();
  // Who waits for the prefix lets others pass.
  EXPECT_FALSE(driver.record(stranger).tokens.empty());
  driver.RunAll();
  for (const uint64_t handle : handles) driver.ExpectLoneOutput(handle);
  // 41 rows once, then one row each; and each second token a row.
  EXPECT_EQ(driver.executor().num_rows(), 41 + 3 * 1 + 4 + 6 + 1);
  EXPECT_EQ(driver.scheduler().stats().cached_tokens, 3 * 40);
}

TEST(SchedulerSharingTest, WhenTheOneThatComputesIsCancelledTheNextTakesOver) {
  SchedulerDriver driver(SmallOptions());
  const uint64_t first = driver.Add(SomeRequest(SomePrompt(60), 2));
  const uint64_t second = driver.Add(SomeRequest(SomePrompt(60), 2));
  driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, 1);
  driver.scheduler().Cancel(first);
  driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, 1);
  driver.RunAll();
  driver.ExpectLoneOutput(second);
  EXPECT_EQ(driver.record(second).usage.cached_tokens, 16);  // what the first one had computed
  driver.ExpectIdle();
}

TEST(SchedulerSharingTest, WaitsForTheSharedPartOnly) {
  SchedulerDriver driver(SmallOptions());
  driver.Add(SomeRequest(SomePrompt(100), 2));
  std::vector<int32_t> branch = SomePrompt(8);
  for (int32_t i = 0; i < 3; ++i) branch.push_back(800);
  const uint64_t handle = driver.Add(SomeRequest(branch, 2));
  driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, 1);
  driver.Step();
  EXPECT_EQ(driver.record(handle).tokens.size(), 1u) << "the long prompt has still far to go";
  driver.RunAll();
  EXPECT_EQ(driver.record(handle).usage.cached_tokens, 8);
  driver.ExpectLoneOutput(handle);
}

// Small requests without end beside one that needs nearly the whole pool: without a bound they
// would keep it out for ever, for one of them always runs.
TEST(SchedulerSharingTest, ALargeRequestIsOvertakenOnlySoManyTimes) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 16;
  SchedulerDriver driver(options);
  std::vector<uint64_t> small;
  const auto add_small = [&] {
    small.push_back(driver.Add(SomeRequest(SomePrompt(4, static_cast<int32_t>(small.size())), 9)));
  };
  const auto num_begun = [&](size_t first) {
    return std::count_if(small.begin() + static_cast<int64_t>(first), small.end(),
                         [&](uint64_t handle) { return !driver.record(handle).tokens.empty(); });
  };
  for (int i = 0; i < 3; ++i) add_small();
  driver.Step();
  const uint64_t large = driver.Add(SomeRequest(SomePrompt(60, 999), 3));
  const size_t num_older = small.size();
  while (driver.record(large).tokens.empty()) {
    ASSERT_LT(driver.num_steps(), 500) << "the large request starves";
    add_small();
    driver.Step();
  }
  // Those who came after it and were served before it.
  EXPECT_GE(num_begun(num_older), 1);
  EXPECT_LE(num_begun(num_older), kMaxOvertakes);
  driver.RunAll();
  driver.ExpectLoneOutput(large);
  for (const uint64_t handle : small) driver.ExpectLoneOutput(handle);
}

SchedulerOptions RoomyOptions() {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 2000;
  options.max_running = 16;
  options.context_length = 4000;
  return options;
}

TEST(SchedulerSharingTest, AShortPromptDoesNotWaitForOlderLongOnes) {
  for (int num_long = 1; num_long <= 8; ++num_long) {
    SchedulerDriver driver(RoomyOptions());
    std::vector<uint64_t> handles;
    for (int i = 0; i < num_long; ++i) {
      handles.push_back(driver.Add(SomeRequest(SomePrompt(800 + i, i), 1)));
    }
    driver.Step();
    const uint64_t brief = driver.Add(SomeRequest(SomePrompt(10, 99), 1));
    // A quarter of 16 rows, 3 times.
    for (int i = 0; i < 3; ++i) driver.Step();
    EXPECT_EQ(driver.record(brief).tokens.size(), 1u) << "behind " << num_long;
    driver.RunAll();
    driver.ExpectLoneOutput(brief);
    for (const uint64_t handle : handles) driver.ExpectLoneOutput(handle);
    // Every step was full but the last with rows and the one that says that they have ended:
    // nothing of the throughput is lost.
    EXPECT_EQ(driver.num_steps(), (driver.executor().num_rows() + 15) / 16 + 1);
    driver.ExpectIdle();
  }
}

// What counts is what has to be computed.
TEST(SchedulerSharingTest, ALongPromptThatIsCachedDoesNotWaitForAnOlderColdOne) {
  SchedulerDriver driver(RoomyOptions());
  std::vector<int32_t> history = SomePrompt(1200, 1);
  driver.Add(SomeRequest(history, 1));
  driver.RunAll();
  const uint64_t cold = driver.Add(SomeRequest(SomePrompt(600, 2), 1));
  driver.Step();
  history.insert(history.end(), 7, 901);
  const uint64_t turn = driver.Add(SomeRequest(history, 1));
  for (int i = 0; i < 3; ++i) driver.Step();
  EXPECT_EQ(driver.record(turn).tokens.size(), 1u);
  EXPECT_TRUE(driver.record(cold).tokens.empty());
  driver.RunAll();
  driver.ExpectLoneOutput(turn);
  driver.ExpectLoneOutput(cold);
}

TEST(SchedulerSharingTest, AFlowOfShortPromptsDelaysALongOneByItsPartOnly) {
  SchedulerDriver driver(RoomyOptions());
  const uint64_t oldest = driver.Add(SomeRequest(SomePrompt(600, 1), 1));
  const uint64_t second = driver.Add(SomeRequest(SomePrompt(300, 2), 1));
  std::vector<uint64_t> flow;
  while (driver.record(second).tokens.empty()) {
    ASSERT_LT(driver.num_steps(), 200) << "it starves";
    flow.push_back(driver.Add(SomeRequest(SomePrompt(8, 10 + driver.num_steps()), 1)));
    driver.Step();
  }
  // 12 rows of 16 are theirs, one after the other.
  EXPECT_LE(driver.record(oldest).first_step, 600 / 12);
  EXPECT_LE(driver.record(second).first_step, 900 / 12);
  driver.RunAll();
  for (const uint64_t handle : flow) driver.ExpectLoneOutput(handle);
}

TEST(SchedulerSharingTest, NoMorePromptsHoldBlocksThanAreNeededToFindAShortOne) {
  SchedulerOptions options = RoomyOptions();
  options.max_running = options.max_step_tokens = 40;
  SchedulerDriver driver(options);
  for (int i = 0; i < 30; ++i) driver.Add(SomeRequest(SomePrompt(100, i), 1));
  driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, kMaxPrefillsAhead);
  driver.RunAll();
  // As many as fill a step run all the same.
  for (int i = 0; i < 40; ++i) driver.Add(SomeRequest(SomePrompt(1, i), 5));
  driver.Step();
  EXPECT_EQ(driver.scheduler().stats().num_running, 40);
}

// Something advances in every step, whatever waits.
TEST(SchedulerSharingTest, TheQueueAlwaysMoves) {
  SchedulerOptions options = SmallOptions();
  options.num_blocks = 8;
  options.max_waiting = 2000;
  SchedulerDriver driver(options);
  std::vector<uint64_t> handles;
  for (int i = 0; i < 300; ++i) {
    handles.push_back(driver.Add(SomeRequest(SomePrompt(1 + i * 7 % 32, i % 5), 1 + i % 20)));
  }
  while (driver.scheduler().HasWork()) {
    const bool anyone =
        driver.scheduler().stats().num_waiting > 0 || driver.scheduler().stats().num_running > 0;
    const StepPlan plan = driver.Step();
    ASSERT_TRUE(!anyone || !plan.segments.empty());
    ASSERT_FALSE(HasFatalFailure());
  }
  for (const uint64_t handle : handles) driver.ExpectLoneOutput(handle);
}

}  // namespace
}  // namespace cairn

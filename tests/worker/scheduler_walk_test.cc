// Random walks of the scheduler against a model that notices every mistake.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/scheduler_driver.h"

namespace cairn {
namespace {

class Walk {
 public:
  explicit Walk(uint32_t seed) : random_(seed), options_(ChooseOptions()), driver_(options_) {}

  void Run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      if (Chance(40)) AddOne();
      if (Chance(5)) CancelOne();
      const StepPlan plan = driver_.scheduler().Plan();
      if (Chance(5)) CancelOne();  // while the ranks compute
      driver_.Finish(plan);
      if (testing::Test::HasFatalFailure()) return;
    }
    driver_.RunAll();
    driver_.ExpectIdle();
    for (const uint64_t handle : live_) {
      driver_.ExpectLoneOutput(handle);
      const Usage& usage = driver_.record(handle).usage;
      if (usage.num_preemptions >= 2) ++num_often_preempted_;
      num_cached_tokens_ += usage.cached_tokens;
    }
    num_preemptions_ = driver_.scheduler().stats().num_preemptions;
    EXPECT_EQ(driver_.scheduler().stats().computed_tokens, driver_.executor().num_rows());
  }

  int64_t num_often_preempted() const { return num_often_preempted_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_copied_tokens() const { return driver_.executor().num_copied_tokens(); }
  int64_t num_requests() const { return static_cast<int64_t>(live_.size()); }

 private:
  bool Chance(uint32_t percent) { return random_() % 100 < percent; }
  int32_t Between(int32_t least, int32_t most) {
    return least + static_cast<int32_t>(random_() % static_cast<uint32_t>(most - least + 1));
  }

  SchedulerOptions ChooseOptions() {
    SchedulerOptions options = SmallOptions();
    options.block_tokens = Between(1, 6);
    options.groups = ChooseGroups();
    int32_t num_tables = 0;
    for (const KvGroup& group : options.groups) num_tables += group.num_tables;
    options.num_blocks = Between(4, 30) * num_tables;
    options.max_running = Between(1, 8);
    options.max_step_tokens = Between(1, 24);
    options.context_length = Between(10, 120);
    options.vocab_size = 13;
    options.prefix_cache = Chance(90);
    return options;
  }

  // One group of layers, with or without a window, or several.
  std::vector<KvGroup> ChooseGroups() {
    std::vector<KvGroup> groups = {{}};
    if (Chance(40)) return groups;
    if (Chance(30)) groups.clear();
    for (int32_t i = Between(1, 2); i > 0; --i)
      groups.push_back({.window = Between(1, 40), .num_tables = Between(1, 3)});
    std::shuffle(groups.begin(), groups.end(), random_);
    return groups;
  }

  // Few different beginnings, so that prefixes are shared at every length.
  GenerateRequest ChooseRequest() {
    const int32_t most =
        std::min(options_.context_length - 1, MaxTokensInPool(PoolOptions(options_)));
    std::vector<int32_t> prompt = SomePrompt(Between(1, most), Between(1, 2));
    for (int32_t& token : prompt) token %= options_.vocab_size;
    if (Chance(60)) prompt[Between(0, static_cast<int32_t>(prompt.size()) - 1)] = Between(0, 12);
    GenerateRequest request = SomeRequest(std::move(prompt), Between(1, 40));
    request.sampling.seed = random_() % 3;
    request.sampling.choice = random_() % 2;
    request.use_prefix_cache = Chance(85);
    if (Chance(20)) request.cache_salt = "salt";
    if (Chance(50)) request.stop_ids = {Between(0, 12)};
    if (Chance(50)) request.min_tokens = Between(0, request.max_tokens);
    return request;
  }

  void AddOne() { live_.push_back(driver_.Add(ChooseRequest())); }

  void CancelOne() {
    if (live_.empty()) return;
    const size_t i = random_() % live_.size();
    if (driver_.record(live_[i]).finish_reason != FinishReason::kNone) return;
    EXPECT_TRUE(driver_.scheduler().Cancel(live_[i]).has_value());
    EXPECT_FALSE(driver_.scheduler().Cancel(live_[i]).has_value());
    live_.erase(live_.begin() + static_cast<int64_t>(i));
  }

  std::mt19937 random_;
  const SchedulerOptions options_;
  SchedulerDriver driver_;
  std::vector<uint64_t> live_;  // not cancelled
  int64_t num_often_preempted_ = 0, num_preemptions_ = 0, num_cached_tokens_ = 0;
};

TEST(SchedulerWalkTest, EveryOutputIsThatOfALoneRun) {
  const uint32_t first_seed = std::random_device{}();
  int64_t num_requests = 0, num_preemptions = 0, num_often_preempted = 0;
  int64_t num_cached_tokens = 0, num_copied_tokens = 0;
  for (uint32_t i = 0; i < 150; ++i) {
    const uint32_t seed = first_seed + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Walk walk(seed);
    walk.Run(200);
    if (HasFailure()) return;
    num_requests += walk.num_requests();
    num_preemptions += walk.num_preemptions();
    num_often_preempted += walk.num_often_preempted();
    num_cached_tokens += walk.num_cached_tokens();
    num_copied_tokens += walk.num_copied_tokens();
  }
  // The walks have been where it hurts.
  EXPECT_GT(num_requests, 3000);
  EXPECT_GT(num_preemptions, 1000);
  EXPECT_GT(num_often_preempted, 100);
  EXPECT_GT(num_cached_tokens, 1000);
  EXPECT_GT(num_copied_tokens, 100);
  RecordProperty("preemptions", static_cast<int>(num_preemptions));
  std::cout << "requests " << num_requests << " preemptions " << num_preemptions
            << " preempted twice or more " << num_often_preempted << " cached tokens "
            << num_cached_tokens << " copied tokens " << num_copied_tokens << "\n";
}

}  // namespace
}  // namespace cairn

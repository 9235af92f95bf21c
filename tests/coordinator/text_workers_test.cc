#include "coordinator/text_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <utility>

namespace cairn {
namespace {

TEST(TextWorkersTest, FinishesWhatWaitsBeforeItEnds) {
  std::atomic<int> done{0};
  {
    TextWorkers workers(2, 100, 100);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(workers.Add([&] { done.fetch_add(1); }, 1).ok());
  }
  EXPECT_EQ(done.load(), 100);
}

// Work that says when it has started and ends when `gate` opens.
std::function<void()> UntilOpen(std::promise<void>* started, std::shared_future<void> gate) {
  return [started, gate = std::move(gate)] {
    started->set_value();
    gate.wait();
  };
}

TEST(TextWorkersTest, RefusesWorkBeyondTheLimit) {
  std::promise<void> started, go;
  std::shared_future<void> gate = go.get_future().share();
  TextWorkers workers(1, 1, 100);
  EXPECT_TRUE(workers.Add(UntilOpen(&started, gate), 1).ok());
  started.get_future().wait();
  EXPECT_TRUE(workers.Add([] {}, 1).ok());
  EXPECT_EQ(workers.Add([] {}, 1),
            absl::ResourceExhaustedError("coordinator overloaded: 1 prompts wait"));
  go.set_value();
}

TEST(TextWorkersTest, RefusesInputBeyondTheLimitUntilSomeIsDone) {
  std::promise<void> started, go, done;
  std::shared_future<void> gate = go.get_future().share();
  TextWorkers workers(1, 10, 100);
  EXPECT_TRUE(workers.Add(UntilOpen(&started, gate), 100).ok());
  started.get_future().wait();  // what runs does not wait
  EXPECT_TRUE(workers.Add([] {}, 60).ok());
  EXPECT_EQ(workers.Add([] {}, 41),
            absl::ResourceExhaustedError(
                "coordinator overloaded: prompts of more than 100 bytes would wait"));
  EXPECT_TRUE(workers.Add([&done] { done.set_value(); }, 40).ok());
  go.set_value();
  done.get_future().wait();
  EXPECT_TRUE(workers.Add([] {}, 100).ok());
}

TEST(TextWorkersTest, BriefWorkGoesFirstAndLongWorkGoesOn) {
  std::promise<void> started, go;
  std::shared_future<void> gate = go.get_future().share();
  std::string order;  // of the one thread
  {
    TextWorkers workers(1, 100);
    EXPECT_TRUE(workers.Add(UntilOpen(&started, gate), 1).ok());
    started.get_future().wait();
    constexpr int64_t kLong = TextWorkers::kBriefBytes + 1;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(workers.Add([&order] { order += 'L'; }, kLong).ok());
    for (int i = 0; i < 17; ++i)
      EXPECT_TRUE(workers.Add([&order] { order += 'b'; }, TextWorkers::kBriefBytes).ok());
    go.set_value();
  }
  EXPECT_EQ(order, "bbbbbbbLbbbbbbbbLbbL");  // the one that held the gate was brief, too
}

}  // namespace
}  // namespace cairn

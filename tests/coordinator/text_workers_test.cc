#include "coordinator/text_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace cairn {
namespace {

TEST(TextWorkersTest, FinishesWhatWaitsBeforeItEnds) {
  std::atomic<int> done{0};
  {
    TextWorkers workers(2, 100);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(workers.Add([&] { done.fetch_add(1); }).ok());
  }
  EXPECT_EQ(done.load(), 100);
}

TEST(TextWorkersTest, RefusesWorkBeyondTheLimit) {
  std::promise<void> started, go;
  std::shared_future<void> gate = go.get_future().share();
  TextWorkers workers(1, 1);
  EXPECT_TRUE(workers
                  .Add([&started, gate] {
                    started.set_value();
                    gate.wait();
                  })
                  .ok());
  started.get_future().wait();
  EXPECT_TRUE(workers.Add([] {}).ok());
  EXPECT_EQ(workers.Add([] {}),
            absl::ResourceExhaustedError("coordinator overloaded: 1 prompts wait"));
  go.set_value();
}

}  // namespace
}  // namespace cairn

#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace cairn {
namespace {

constexpr absl::Duration kNoWait = absl::ZeroDuration();
// Longer than any sane test machine stalls: reaching it is a failure, not a pass.
constexpr absl::Duration kLongWait = absl::Seconds(60);

TEST(BoundedQueueTest, GivesItemsInOrder) {
  BoundedQueue<int> queue(3);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.Pop(kNoWait), 1);
  EXPECT_EQ(queue.Pop(kNoWait), 2);
  EXPECT_EQ(queue.Pop(kNoWait), std::nullopt);
}

TEST(BoundedQueueTest, RefusesWhenFullAndLeavesTheItemWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(item)));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
  queue.Pop(kNoWait);
  EXPECT_TRUE(queue.TryPush(std::move(item)));
}

TEST(BoundedQueueTest, PopGivesUpAtItsDeadline) {
  BoundedQueue<int> queue(1);
  const absl::Time start = absl::Now();
  EXPECT_EQ(queue.Pop(absl::Milliseconds(30)), std::nullopt);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(29));
  EXPECT_FALSE(queue.drained());
}

TEST(BoundedQueueTest, APushWakesAWaitingPop) {
  BoundedQueue<int> queue(1);
  std::thread pusher([&] { EXPECT_TRUE(queue.TryPush(5)); });
  EXPECT_EQ(queue.Pop(kLongWait), 5);
  pusher.join();
}

TEST(BoundedQueueTest, AcceptsAnInfiniteWait) {
  BoundedQueue<int> queue(1);
  std::thread pusher([&] { EXPECT_TRUE(queue.TryPush(5)); });
  EXPECT_EQ(queue.Pop(absl::InfiniteDuration()), 5);
  pusher.join();
}

TEST(BoundedQueueTest, CloseRefusesPushesButGivesWhatIsInside) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  queue.Close();
  queue.Close();
  EXPECT_FALSE(queue.TryPush(2));
  EXPECT_FALSE(queue.drained());
  EXPECT_EQ(queue.Pop(kLongWait), 1);
  EXPECT_TRUE(queue.drained());
  EXPECT_EQ(queue.Pop(kLongWait), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesAllWhoWait) {
  BoundedQueue<int> queue(1);
  std::vector<std::thread> waiters;
  std::atomic<int> woken = 0;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      EXPECT_EQ(queue.Pop(kLongWait), std::nullopt);
      ++woken;
    });
  }
  queue.Close();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 4);
}

TEST(BoundedQueueTest, PopAllTakesEverythingAtOnce) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.TryPush(int{i}));
  EXPECT_EQ(queue.PopAll(kNoWait), (std::deque<int>{0, 1, 2}));
  EXPECT_TRUE(queue.PopAll(kNoWait).empty());
  EXPECT_TRUE(queue.TryPush(9));
}

TEST(BoundedQueueTest, LosesAndDoublesNothingAmongManyThreads) {
  constexpr int kThreads = 4, kItems = 2000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> threads;
  std::vector<std::atomic<int>> seen(kThreads * kItems);
  std::atomic<int> pushers = kThreads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kItems; ++i) {
        while (!queue.TryPush(t * kItems + i)) std::this_thread::yield();
      }
      if (--pushers == 0) queue.Close();
    });
    threads.emplace_back([&] {
      while (!queue.drained()) {
        if (const std::optional<int> item = queue.Pop(kLongWait)) ++seen[*item];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& count : seen) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace cairn

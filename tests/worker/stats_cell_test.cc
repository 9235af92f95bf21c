#include "worker/stats_cell.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

struct Value {
  int32_t a = 0;
  int64_t b = 0, c = 0;
  double d = 0;
};

TEST(StatsCellTest, GivesWhatWasStoredLast) {
  StatsCell<Value> cell;
  EXPECT_EQ(cell.Load().b, 0);
  cell.Store({.a = 1, .b = 2, .c = 3, .d = 4.5});
  const Value value = cell.Load();
  EXPECT_EQ(value.a, 1);
  EXPECT_EQ(value.c, 3);
  EXPECT_EQ(value.d, 4.5);
}

TEST(StatsCellTest, NeverShowsHalfOfAStore) {
  StatsCell<Value> cell;
  std::atomic<bool> stop = false;
  std::atomic<int> num_reading = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      int64_t last = 0;
      ++num_reading;
      while (!stop) {
        const Value value = cell.Load();
        EXPECT_EQ(value.b, value.a);
        EXPECT_EQ(value.c, value.a);
        EXPECT_EQ(value.d, value.a);
        EXPECT_GE(value.b, last);
        last = value.b;
      }
    });
  }
  while (num_reading < 2) std::this_thread::yield();
  for (int32_t i = 0; i < 1000000; ++i) {
    cell.Store({.a = i, .b = i, .c = i, .d = static_cast<double>(i)});
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace cairn

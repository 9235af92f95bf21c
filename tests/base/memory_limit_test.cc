#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/base/made_up_machine.h"

namespace cairn {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class MemoryLimitTest : public MadeUpMachine {
 protected:
  MemoryLimitTest() : MadeUpMachine("memory") {}

  MemoryLimit Read() { return ReadMemoryLimit(root_); }
};

TEST_F(MemoryLimitTest, WithoutControlGroupsTheHostsMemoryCounts) {
  EXPECT_EQ(Read().bytes, kNone);
  EXPECT_EQ(Read().file, "");
  Write("/proc/meminfo", "MemTotal:       24541252 kB\nMemFree:  1 kB\n");
  EXPECT_EQ(Read().bytes, int64_t{24541252} * 1024);
  EXPECT_EQ(Read().file, root_ + "/proc/meminfo");
}

TEST_F(MemoryLimitTest, TheTightestGroupOnTheWayUpCounts) {
  Write("/proc/meminfo", "MemTotal: 8388608 kB\n");
  UseSecondGeneration("/a/b/c");
  Write("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "2147483648\n");
  Write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
  EXPECT_EQ(Read().bytes, int64_t{1} << 30);
  EXPECT_EQ(Read().file, root_ + "/sys/fs/cgroup/a/memory.max");
  // A limit above what the host has is none.
  Write("/sys/fs/cgroup/a/memory.max", "1099511627776\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(Read().bytes, int64_t{8} << 30);
}

TEST_F(MemoryLimitTest, ReadsTheFirstGeneration) {
  Write("/proc/meminfo", "MemTotal: 8388608 kB\n");
  UseFirstGeneration("/docker/abc");
  // What that generation writes for no limit.
  Write("/sys/fs/cgroup/of us/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Read().bytes, int64_t{8} << 30);
  Write("/sys/fs/cgroup/of us/docker/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(Read().bytes, int64_t{512} << 20);
}

TEST_F(MemoryLimitTest, FindsTheGroupOfAContainerThatSeesOnlyItsOwnPart) {
  UseFirstGeneration("/docker/abc/inner", "/docker/abc");
  Write("/sys/fs/cgroup/of us/inner/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(Read().bytes, 4096);
  UseSecondGeneration("/kubepods/x", "/elsewhere");
  Write("/sys/fs/cgroup/memory.max", "8192\n");
  EXPECT_EQ(Read().bytes, 8192);
}

TEST_F(MemoryLimitTest, NonsenseLimitsNothing) {
  UseSecondGeneration("/pod");
  for (const char* text : {"", "\n", "abc", "0", "-5", "99999999999999999999", "1e9", "nan"}) {
    Write("/sys/fs/cgroup/pod/memory.max", text);
    EXPECT_EQ(Read().bytes, kNone) << text;
  }
  for (const char* text : {"", "MemTotal:", "MemTotal: many kB", "MemFree: 1 kB",
                           "MemTotal: 9223372036854775807 kB"}) {
    Write("/proc/meminfo", text);
    EXPECT_EQ(Read().bytes, kNone) << text;
  }
}

TEST(MemoryLimitOfThisMachineTest, IsFound) {
  EXPECT_GT(ReadMemoryLimit().bytes, int64_t{1} << 20);
  EXPECT_LT(ReadMemoryLimit().bytes, kNone);
  EXPECT_NE(ReadMemoryLimit().file, "");
}

}  // namespace
}  // namespace cairn

#include "base/cpu_quota.h"

#include <gtest/gtest.h>

#include "tests/base/made_up_machine.h"

namespace cairn {
namespace {

class CpuQuotaTest : public MadeUpMachine {
 protected:
  CpuQuotaTest() : MadeUpMachine("cpu,cpuacct") {}

  CpuLimits Read(int affinity) { return ReadCpuLimits(root_, affinity); }
};

TEST_F(CpuQuotaTest, WithoutControlGroupsTheAffinityCounts) {
  EXPECT_EQ(Read(6).usable, 6);
  EXPECT_EQ(Read(6).quota, 0);
}

TEST_F(CpuQuotaTest, RoundsTheQuotaDownButNotBelowOne) {
  UseSecondGeneration("/pod");
  Write("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(Read(8).usable, 3);
  EXPECT_EQ(Read(8).quota, 3.5);
  EXPECT_EQ(Read(2).usable, 2);
  Write("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(Read(8).usable, 1);
}

TEST_F(CpuQuotaTest, TheWordMaxIsNoQuota) {
  UseSecondGeneration("/pod");
  Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(Read(8).usable, 8);
}

TEST_F(CpuQuotaTest, TheTightestGroupOnTheWayUpCounts) {
  UseSecondGeneration("/a/b/c");
  Write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "500000 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  const CpuLimits limits = Read(16);
  EXPECT_EQ(limits.usable, 2);
  EXPECT_EQ(limits.quota_file, root_ + "/sys/fs/cgroup/a/cpu.max");
}

TEST_F(CpuQuotaTest, ReadsTheFirstGeneration) {
  UseFirstGeneration("/docker/abc");
  Write("/sys/fs/cgroup/of us/docker/abc/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/of us/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read(8).usable, 8);
  Write("/sys/fs/cgroup/of us/docker/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/of us/docker/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(Read(8).usable, 2);
}

TEST_F(CpuQuotaTest, FindsTheGroupOfAContainerThatSeesOnlyItsOwnPart) {
  UseFirstGeneration("/docker/abc/inner", "/docker/abc");
  Write("/sys/fs/cgroup/of us/inner/cpu.cfs_quota_us", "300000\n");
  Write("/sys/fs/cgroup/of us/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read(8).usable, 3);
  // Named from outside what is mounted: the mount point itself is the group.
  UseSecondGeneration("/kubepods/x", "/elsewhere");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(Read(8).usable, 4);
  UseSecondGeneration("/../../other");
  EXPECT_EQ(Read(8).usable, 4);
}

TEST_F(CpuQuotaTest, NonsenseLimitsNothing) {
  UseSecondGeneration("/pod");
  for (const char* text : {"", "\n", "abc 100000", "100000", "0 0", "-5 100000", "1 0", "nan x"}) {
    Write("/sys/fs/cgroup/pod/cpu.max", text);
    EXPECT_EQ(Read(8).usable, 8) << text;
  }
  Write("/proc/self/mountinfo", "broken\n - \n1 2 3 - cgroup2\n");
  Write("/proc/self/cgroup", "::\nx\n0:\n0::/pod\n");
  EXPECT_EQ(Read(8).usable, 8);
}

TEST_F(CpuQuotaTest, RanksOfOneHostShareWhatThereIs) {
  const CpuLimits limits = Read(5);
  EXPECT_EQ(limits.ThreadsPerRank(1), 5);
  EXPECT_EQ(limits.ThreadsPerRank(2), 2);
  EXPECT_EQ(limits.ThreadsPerRank(8), 1);
}

TEST(CpuLimitsTest, ThisMachineHasAtLeastOneCpu) {
  const CpuLimits limits = ReadCpuLimits();
  EXPECT_GE(limits.usable, 1);
  EXPECT_LE(limits.usable, limits.affinity);
  EXPECT_NE(limits.ToString().find("usable="), std::string::npos);
}

}  // namespace
}  // namespace cairn

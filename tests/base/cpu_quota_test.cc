#include "base/cpu_quota.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace cairn {
namespace {

// A made-up machine: files below a temporary root.
class CpuQuotaTest : public testing::Test {
 protected:
  CpuQuotaTest() {
    std::string name = testing::TempDir() + "/cpu_quota_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CpuQuotaTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  void Write(const std::string& path, const std::string& text) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path(), ignored);
    std::ofstream(root_ + path) << text;
  }
  // Our group, and where its hierarchy is mounted.
  void UseSecondGeneration(const std::string& group, const std::string& mount_root = "/") {
    Write("/proc/self/cgroup", "0::" + group + "\n");
    Write("/proc/self/mountinfo",
          "22 1 0:20 / /proc rw - proc proc rw\n"
          "31 23 0:28 " +
              mount_root + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  void UseFirstGeneration(const std::string& group, const std::string& mount_root = "/") {
    Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:" + group + "\n3:cpuset:/\n0::/\n");
    Write("/proc/self/mountinfo",
          "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
          "32 31 0:29 " +
              mount_root + " /sys/fs/cgroup/cpu\\040acct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
  CpuLimits Read(int affinity) { return ReadCpuLimits(root_, affinity); }

  std::string root_;
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
  Write("/sys/fs/cgroup/cpu acct/docker/abc/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu acct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read(8).usable, 8);
  Write("/sys/fs/cgroup/cpu acct/docker/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpu acct/docker/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(Read(8).usable, 2);
}

TEST_F(CpuQuotaTest, FindsTheGroupOfAContainerThatSeesOnlyItsOwnPart) {
  UseFirstGeneration("/docker/abc/inner", "/docker/abc");
  Write("/sys/fs/cgroup/cpu acct/inner/cpu.cfs_quota_us", "300000\n");
  Write("/sys/fs/cgroup/cpu acct/inner/cpu.cfs_period_us", "100000\n");
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

// How many CPUs this process may really use: affinity and control-group quotas, not the host's
// cores. A thread more than the quota allows makes every barrier wait for a throttled thread.
#pragma once

#include <string>

namespace cairn {

struct CpuLimits {
  // CPUs in the affinity mask, which includes cpusets. At least 1.
  int affinity = 1;
  // The smallest quota on the way from our control group up to the root, in CPUs; 0 is no quota.
  double quota = 0;
  // The file the quota was read from; empty without one.
  std::string quota_file;
  // floor(min(affinity, quota)), at least 1.
  int usable = 1;

  // The share of one of `local_ranks` workers on this host, at least 1.
  int ThreadsPerRank(int local_ranks) const;
  // For the log: "usable=3 affinity=8 quota=3.5 (/sys/fs/cgroup/.../cpu.max)".
  std::string ToString() const;
};

// Reads both generations of control groups; a file that is missing or unreadable limits nothing.
// Thread: any; the affinity is the calling thread's.
CpuLimits ReadCpuLimits();

// The same with `root` put before every path and the affinity given. For tests.
CpuLimits ReadCpuLimits(const std::string& root, int affinity);

}  // namespace cairn

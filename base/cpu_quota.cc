#include "base/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/control_group.h"
#include "base/log.h"

namespace cairn {
namespace {

// "max 100000" or "150000 100000" → CPUs; 0 is no quota.
double ParseCpuMax(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0, period = 0;
  if (words.size() < 2 || !absl::SimpleAtod(words[0], &quota) ||
      !absl::SimpleAtod(words[1], &period)) {
    return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

double ReadQuota(const std::string& directory, bool second_generation, std::string* file) {
  if (second_generation) {
    *file = directory + "/cpu.max";
    return ParseCpuMax(ReadSystemFile(*file));
  }
  *file = directory + "/cpu.cfs_quota_us";
  return ParseCpuMax(
      absl::StrCat(ReadSystemFile(*file), " ", ReadSystemFile(directory + "/cpu.cfs_period_us")));
}

int CountAffinity() {
  // The mask's size is not known beforehand: a machine may have more than CPU_SETSIZE CPUs.
  constexpr int kMaxCpus = 1 << 20;
  for (int cpus = CPU_SETSIZE; cpus <= kMaxCpus; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    CHECK(set != nullptr);
    const size_t size_bytes = CPU_ALLOC_SIZE(cpus);
    const bool read = sched_getaffinity(0, size_bytes, set) == 0;
    const bool too_small = !read && errno == EINVAL;
    const int count = read ? CPU_COUNT_S(size_bytes, set) : 0;
    CPU_FREE(set);
    if (!too_small) return std::max(count, 1);
  }
  return 1;
}

}  // namespace

CpuLimits ReadCpuLimits(const std::string& root, int affinity) {
  CHECK_GE(affinity, 1);
  CpuLimits limits;
  limits.affinity = affinity;
  VisitControlGroups(root, "cpu", [&](const std::string& directory, bool second_generation) {
    std::string file;
    const double quota = ReadQuota(directory, second_generation, &file);
    if (quota > 0 && (limits.quota == 0 || quota < limits.quota)) {
      limits.quota = quota;
      limits.quota_file = file;
    }
  });
  const double allowed = limits.quota > 0 ? std::min<double>(affinity, limits.quota) : affinity;
  limits.usable = std::max(1, static_cast<int>(std::floor(allowed)));
  return limits;
}

CpuLimits ReadCpuLimits() { return ReadCpuLimits("", CountAffinity()); }

int CpuLimits::ThreadsPerRank(int local_ranks) const {
  CHECK_GE(local_ranks, 1);
  return std::max(1, usable / local_ranks);
}

std::string CpuLimits::ToString() const {
  const std::string quota_text =
      quota > 0 ? absl::StrCat(quota, " (", quota_file, ")") : std::string("none");
  return absl::StrCat("usable=", usable, " affinity=", affinity, " quota=", quota_text);
}

}  // namespace cairn

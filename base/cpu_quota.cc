#include "base/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"

namespace cairn {
namespace {

// One mounted control-group hierarchy: the part of the group tree under `group` is seen at `point`.
struct Mount {
  std::string group;
  std::string point;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Undoes the kernel's \040 for a space and the like.
std::string Unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7' ? text[at] - '0' : -1;
    };
    if (text[i] == '\\' && digit(i + 1) >= 0 && digit(i + 2) >= 0 && digit(i + 3) >= 0) {
      result += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool ListContains(const std::string& list, std::string_view word) {
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(list, ','))) {
    if (item == word) return true;
  }
  return false;
}

// Lines of mountinfo are "id parent major:minor root point options [tags...] - type source super".
// `controller` empty: the second generation, which has one hierarchy.
std::vector<Mount> FindMounts(const std::string& mountinfo, std::string_view controller) {
  std::vector<Mount> mounts;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(mountinfo, '\n'))) {
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool wanted = controller.empty()
                            ? right[0] == "cgroup2"
                            : right[0] == "cgroup" && ListContains(right[2], controller);
    if (wanted) mounts.push_back({Unescape(left[3]), Unescape(left[4])});
  }
  return mounts;
}

// Our group's path in one hierarchy; lines are "id:controllers:path". Empty if not listed.
std::string FindGroup(const std::string& cgroup, std::string_view controller) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(cgroup, '\n'))) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool wanted =
        controller.empty() ? fields[1].empty() : ListContains(fields[1], controller);
    if (wanted) return fields[2];
  }
  return "";
}

// Where `group` lies below the mount. In a container the group may be named from a root that is
// not visible; then the mount point itself is ours.
std::string PathUnderMount(const Mount& mount, const std::string& group) {
  if (mount.group == "/") return group == "/" ? "" : group;
  if (group == mount.group) return "";
  if (group.compare(0, mount.group.size() + 1, mount.group + "/") == 0) {
    return group.substr(mount.group.size());
  }
  return "";
}

bool HasParentStep(const std::string& path) { return path.find("/..") != std::string::npos; }

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
    return ParseCpuMax(ReadFile(*file));
  }
  *file = directory + "/cpu.cfs_quota_us";
  return ParseCpuMax(
      absl::StrCat(ReadFile(*file), " ", ReadFile(directory + "/cpu.cfs_period_us")));
}

// Takes the smallest quota of the group and of all groups above it that can be seen.
void ApplyQuotas(const std::string& root, const Mount& mount, std::string group,
                 bool second_generation, CpuLimits* limits) {
  group = HasParentStep(group) ? "" : PathUnderMount(mount, group);
  while (true) {
    std::string file;
    const double quota = ReadQuota(root + mount.point + group, second_generation, &file);
    if (quota > 0 && (limits->quota == 0 || quota < limits->quota)) {
      limits->quota = quota;
      limits->quota_file = file;
    }
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
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
  const std::string cgroup = ReadFile(root + "/proc/self/cgroup");
  const std::string mountinfo = ReadFile(root + "/proc/self/mountinfo");
  for (const std::string controller : {"", "cpu"}) {
    const std::string group = FindGroup(cgroup, controller);
    if (group.empty()) continue;
    for (const Mount& mount : FindMounts(mountinfo, controller)) {
      ApplyQuotas(root, mount, group, controller.empty(), &limits);
    }
  }
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

#include "base/control_group.h"

#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"

namespace cairn {
namespace {

// One mounted control-group hierarchy: the part of the group tree under `group` is seen at `point`.
struct Mount {
  std::string group;
  std::string point;
};

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

// The group and all groups above it that can be seen.
void VisitUpwards(const std::string& mount_point, std::string group, bool second_generation,
                  const ControlGroupVisitor& visit) {
  while (true) {
    visit(mount_point + group, second_generation);
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

std::string ReadSystemFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void VisitControlGroups(const std::string& root, const std::string& controller,
                        const ControlGroupVisitor& visit) {
  const std::string cgroup = ReadSystemFile(root + "/proc/self/cgroup");
  const std::string mountinfo = ReadSystemFile(root + "/proc/self/mountinfo");
  for (const std::string& hierarchy : {std::string(), controller}) {
    const std::string group = FindGroup(cgroup, hierarchy);
    if (group.empty()) continue;
    for (const Mount& mount : FindMounts(mountinfo, hierarchy)) {
      VisitUpwards(root + mount.point, HasParentStep(group) ? "" : PathUnderMount(mount, group),
                   hierarchy.empty(), visit);
    }
  }
}

}  // namespace cairn

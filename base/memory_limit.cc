#include "base/memory_limit.h"

#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/control_group.h"

namespace cairn {
namespace {

// The number at the start of a text; 0 ("max", nonsense) is no limit.
int64_t ParseBytes(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t bytes = 0;
  if (words.empty() || !absl::SimpleAtoi(words[0], &bytes)) return 0;
  return bytes;
}

// What the host has; 0 if it does not say.
int64_t HostBytes(const std::string& meminfo) {
  constexpr char kKey[] = "MemTotal:";
  if (meminfo.compare(0, sizeof kKey - 1, kKey) != 0) return 0;
  const int64_t kibibytes = ParseBytes(meminfo.substr(sizeof kKey - 1));
  return kibibytes < std::numeric_limits<int64_t>::max() / 1024 ? kibibytes * 1024 : 0;
}

void Apply(int64_t bytes, const std::string& file, MemoryLimit* limit) {
  if (bytes <= 0 || bytes >= limit->bytes) return;
  limit->bytes = bytes;
  limit->file = file;
}

}  // namespace

MemoryLimit ReadMemoryLimit(const std::string& root) {
  MemoryLimit limit{.bytes = std::numeric_limits<int64_t>::max(), .file = ""};
  const std::string meminfo = root + "/proc/meminfo";
  Apply(HostBytes(ReadSystemFile(meminfo)), meminfo, &limit);
  VisitControlGroups(root, "memory", [&](const std::string& directory, bool second_generation) {
    const std::string file =
        directory + (second_generation ? "/memory.max" : "/memory.limit_in_bytes");
    Apply(ParseBytes(ReadSystemFile(file)), file, &limit);
  });
  return limit;
}

MemoryLimit ReadMemoryLimit() { return ReadMemoryLimit(""); }

}  // namespace cairn

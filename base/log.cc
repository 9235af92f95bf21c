#include "base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

std::atomic<int> min_severity{0};
// Set once at start, before threads; never freed, so that a line written at exit still finds it.
std::string* const tag = new std::string;

}  // namespace

void SetMinLogSeverity(LogSeverity severity) { min_severity = static_cast<int>(severity); }
void SetLogTag(const std::string& text) { *tag = text; }

namespace internal_log {

bool Enabled(LogSeverity severity) {
  return static_cast<int>(severity) >= min_severity.load(std::memory_order_relaxed);
}

Line::~Line() {
  const char* slash = std::strrchr(file_, '/');
  const std::string line =
      absl::StrFormat("%c %s %s%s%d %s:%d] %s\n", "IWEF"[static_cast<int>(severity_)],
                      absl::FormatTime("%H:%M:%E6S", absl::Now(), absl::UTCTimeZone()), *tag,
                      tag -> empty() ? "" : " ", static_cast<int>(syscall(SYS_gettid)),
                      slash != nullptr ? slash + 1 : file_, line_, stream_.str());
  // One write, so that lines of several processes do not mix. Nothing can be done if it fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  if (severity_ == LogSeverity::kFatal) std::abort();
}

}  // namespace internal_log
}  // namespace cairn

// LOG and CHECK with the names and meaning of absl/log, which the distribution's Abseil lacks.
//
//   LOG(INFO)     once per life event, one line per finished request
//   LOG(WARNING)  someone should look       LOG(ERROR)  something was lost
//   LOG(FATAL) and CHECK end the process: a bug, never an error of the world.
//
// Lines go to stderr as `LEVEL time thread file:line] event key=value ...`, each in one write.
// Thread: any.
#pragma once

#include <sstream>
#include <string>

namespace cairn {

enum class LogSeverity : int { kInfo = 0, kWarning = 1, kError = 2, kFatal = 3 };

// Lines below this are dropped. Default: kInfo.
void SetMinLogSeverity(LogSeverity severity);
// Put before every line of this process, e.g. "worker.1".
void SetLogTag(const std::string& tag);

namespace internal_log {

class Line {
 public:
  Line(LogSeverity severity, const char* file, int line)
      : severity_(severity), file_(file), line_(line) {}
  ~Line();  // Writes; ends the process if fatal.
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  const LogSeverity severity_;
  const char* const file_;
  const int line_;
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) const {}
};

bool Enabled(LogSeverity severity);

}  // namespace internal_log
}  // namespace cairn

#define CAIRN_SEVERITY_INFO ::cairn::LogSeverity::kInfo
#define CAIRN_SEVERITY_WARNING ::cairn::LogSeverity::kWarning
#define CAIRN_SEVERITY_ERROR ::cairn::LogSeverity::kError
#define CAIRN_SEVERITY_FATAL ::cairn::LogSeverity::kFatal

#define LOG(severity)                                        \
  !::cairn::internal_log::Enabled(CAIRN_SEVERITY_##severity) \
      ? (void)0                                              \
      : ::cairn::internal_log::Voidify() &                   \
            ::cairn::internal_log::Line(CAIRN_SEVERITY_##severity, __FILE__, __LINE__).stream()

#define CHECK(condition)                                                                           \
  __builtin_expect(static_cast<bool>(condition), 1)                                                \
      ? (void)0                                                                                    \
      : ::cairn::internal_log::Voidify() &                                                         \
            ::cairn::internal_log::Line(::cairn::LogSeverity::kFatal, __FILE__, __LINE__).stream() \
                << "CHECK failed: " #condition " "

#define CAIRN_CHECK_OP_(a, op, b) CHECK((a)op(b)) << "(" << (a) << " vs " << (b) << ") "
#define CHECK_EQ(a, b) CAIRN_CHECK_OP_(a, ==, b)
#define CHECK_NE(a, b) CAIRN_CHECK_OP_(a, !=, b)
#define CHECK_LT(a, b) CAIRN_CHECK_OP_(a, <, b)
#define CHECK_LE(a, b) CAIRN_CHECK_OP_(a, <=, b)
#define CHECK_GT(a, b) CAIRN_CHECK_OP_(a, >, b)
#define CHECK_GE(a, b) CAIRN_CHECK_OP_(a, >=, b)
#define CHECK_OK(expr)                                          \
  if (const auto cairn_check_ok = (expr); !cairn_check_ok.ok()) \
  LOG(FATAL) << "CHECK_OK failed: " #expr ": " << cairn_check_ok.ToString()

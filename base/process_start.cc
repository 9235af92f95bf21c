#include "base/process_start.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <typeinfo>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

const char* program_name = "cairn";  // set once at start, before threads

const char* CauseOfEnd() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type != nullptr && *type == typeid(std::bad_alloc)) {
    return "the system gives no more memory: see the limits of this process (ulimit -v)";
  }
  if (type != nullptr && *type == typeid(std::system_error)) {
    return "the system gives no more threads: see the limits of this user (ulimit -u)";
  }
  return nullptr;
}

// Nothing that allocates: it is called by a signal handler too.
[[noreturn]] void EndWith(const char* cause) {
  for (const char* text : {program_name, ": ", cause, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

[[noreturn]] void EndWithOneLine() {
  const char* cause = CauseOfEnd();
  if (cause == nullptr) std::abort();
  EndWith(cause);
}

void OnBusError(int signal, siginfo_t* info, void*) {
  if (info->si_code == BUS_ADRERR) {
    EndWith("a file was cut short while it was in use: the model's, if nothing else is mapped");
  }
  // A bug: the default action, when the access is tried again.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
}

// The limit that a shell sets is a thousand, which is fewer than the connections strangers can
// open; gRPC's listener never accepts again once it has met the limit.
void RaiseOpenFileLimit() {
  constexpr rlim_t kEnough = 1 << 16;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void StartProcess(const char* program) {
  program_name = program;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is the one that is missing.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(1);
  }
  RaiseOpenFileLimit();
  std::set_terminate(EndWithOneLine);
  struct sigaction bus_error = {};
  bus_error.sa_sigaction = OnBusError;
  bus_error.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &bus_error, nullptr);
}

absl::Status FlushStandardOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "cannot write standard output: ", errno != 0 ? strerror(errno) : "an earlier write failed"));
}

}  // namespace cairn

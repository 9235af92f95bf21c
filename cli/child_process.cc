#include "cli/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/signal_watch.h"
#include "base/unique_handle.h"

namespace cairn {
namespace {

// Between fork and exec: only calls that are safe there.
[[noreturn]] void BecomeChild(pid_t parent, const char* program, char* const* arguments, int log) {
  RestoreSignals();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before we could be told
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(program, arguments);
  static constexpr char kMessage[] = "cannot be executed\n";
  if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) _exit(126);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                 const std::vector<std::string>& arguments,
                                                 const std::string& log_file) {
  const UniqueFd log(open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) {
    return absl::InternalError(absl::StrCat("cannot write ", log_file, ": ", strerror(errno)));
  }
  std::vector<std::string> texts{program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::InternalError(absl::StrCat("cannot start ", program, ": ", strerror(errno)));
  }
  if (pid == 0) BecomeChild(parent, program.c_str(), pointers.data(), log.get());
  return ChildProcess(pid);
}

bool ChildProcess::Running() {
  if (wait_status_.has_value()) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  wait_status_ = status;
  return false;
}

std::optional<int> ChildProcess::exit_status() const {
  if (!wait_status_.has_value() || !WIFEXITED(*wait_status_)) return std::nullopt;
  return WEXITSTATUS(*wait_status_);
}

std::string ChildProcess::EndText() const {
  if (!wait_status_.has_value()) return "running";
  if (WIFEXITED(*wait_status_)) return absl::StrCat("exit status ", WEXITSTATUS(*wait_status_));
  return absl::StrCat("signal ", WTERMSIG(*wait_status_), " (", strsignal(WTERMSIG(*wait_status_)),
                      ")");
}

void ChildProcess::Signal(int signal) {
  // After the wait the number may belong to somebody else.
  if (!wait_status_.has_value()) kill(pid_, signal);
}

}  // namespace cairn

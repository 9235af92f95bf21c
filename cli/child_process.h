// A program started as a child of this one, which it does not outlive.
// Thread: one, that lives as long as the children: a child gets SIGTERM when the thread that
// started it ends, however that happens.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace cairn {

class ChildProcess {
 public:
  // Runs `program` with `arguments`; its output goes to the end of `log_file`. It is in a process
  // group of its own, so that a terminal's Ctrl-C reaches only us.
  // Errors: Internal if the system starts no process; a program that cannot be executed exits
  // with 127.
  static absl::StatusOr<ChildProcess> Start(const std::string& program,
                                            const std::vector<std::string>& arguments,
                                            const std::string& log_file);

  pid_t pid() const { return pid_; }
  // Whether it still runs, as of now.
  bool Running();
  // How it ended, once it does not run: "exit status 2", "signal 9 (Killed)".
  std::string EndText() const;
  // Once it does not run: its exit status; nothing if a signal ended it.
  std::optional<int> exit_status() const;
  void Signal(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::optional<int> wait_status_;
};

}  // namespace cairn

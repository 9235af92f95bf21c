// A whole cluster on this machine: one coordinator and the workers, as child processes.
//
// A child that dies is started again, after a pause that grows while it keeps dying; a worker that
// says it will never fit ends everything, with its reason. Stop ends all: politely, then not.
// Thread: the main thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_handle.h"
#include "cli/child_process.h"

namespace cairn {

class LocalCluster {
 public:
  struct Options {
    std::string program_directory;  // where cairn-coordinator and cairn-worker are
    std::string state_directory;    // made if missing: secret, logs
    int32_t num_workers = 1;
    std::vector<std::string> coordinator_arguments;  // without --secret-file
    std::vector<std::string> worker_arguments;       // without --secret-file
    absl::Duration drain_limit = absl::Seconds(5);
    absl::Duration min_restart_pause = absl::Seconds(1);
    absl::Duration max_restart_pause = absl::Seconds(30);
  };
  // Starts all children. `say` gets one line for each thing worth knowing.
  // Errors: FailedPrecondition if another cluster uses the state directory; Internal.
  static absl::StatusOr<LocalCluster> Start(const Options& options,
                                            std::function<void(const std::string&)> say);

  // Looks after the children; call it some times a second.
  // Errors: what ended the cluster for good, in one line.
  absl::Status Watch();
  // The coordinator has ended because it was asked to: Stop should follow.
  bool drained() const { return drained_; }
  // Whether `pid` is one of the children that were started last.
  bool Owns(int64_t pid) const;
  // Ends all children; returns when they are gone. `hurry` is asked meanwhile: true kills.
  void Stop(const std::function<bool()>& hurry);

 private:
  struct Program {
    std::string name;  // "coordinator", "worker 0"
    std::string path;
    std::vector<std::string> arguments;
    std::string log_file;
    std::optional<ChildProcess> process;
    absl::Time started, restart_at;
    absl::Duration pause;
    bool has_been_up = false;  // lived long enough to be no bad start
  };

  LocalCluster(const Options& options, std::function<void(const std::string&)> say, UniqueFd lock);
  absl::Status StartProgram(Program* program);
  absl::Status WatchProgram(Program* program);
  void SignalWorkers(int signal);
  bool AnyRunning();
  bool WaitUntilGone(Program* program, absl::Time deadline, const std::function<bool()>& hurry);

  Options options_;
  std::function<void(const std::string&)> say_;
  UniqueFd lock_;
  RealClock clock_;
  std::vector<Program> programs_;  // the coordinator first
  bool drained_ = false;
};

// The folder of the program that runs. Errors: Internal.
absl::StatusOr<std::string> ProgramDirectory();
// "<home>/.local/state/cairn/<name>". Errors: Internal if this user has no home.
absl::StatusOr<std::string> DefaultStateDirectory(const std::string& name);

}  // namespace cairn

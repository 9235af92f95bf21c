#include "cli/local_cluster.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/secret.h"

namespace cairn {
namespace {

constexpr int kRefusedStatus = 2;  // a worker's: starting it again does not help
// A program that ran for so long has started well.
constexpr absl::Duration kGoodStart = absl::Seconds(20);
constexpr absl::Duration kKillAfter = absl::Seconds(5);  // beyond the drain

absl::Status MakeDirectories(const std::string& path) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at < path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return absl::InternalError(absl::StrCat("cannot make ", part, ": ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

// The last line that says something, without the log's own prefix.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last.substr(0, 500);
}

}  // namespace

absl::StatusOr<std::string> ProgramDirectory() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0 || size == sizeof(path)) {
    return absl::InternalError("cannot tell where this program is");
  }
  const std::string text(path, static_cast<size_t>(size));
  return text.substr(0, text.rfind('/'));
}

absl::StatusOr<std::string> DefaultStateDirectory(const std::string& name) {
  const passwd* user = getpwuid(getuid());
  if (user == nullptr || user->pw_dir == nullptr) {
    return absl::InternalError("this user has no home: give --state-dir");
  }
  return absl::StrCat(user->pw_dir, "/.local/state/cairn/", name);
}

LocalCluster::LocalCluster(const Options& options, std::function<void(const std::string&)> say,
                           UniqueFd lock)
    : options_(options), say_(std::move(say)), lock_(std::move(lock)) {
  const std::string secret = absl::StrCat(options.state_directory, "/secret");
  const auto add = [&](const std::string& name, const char* program,
                       std::vector<std::string> arguments, const std::string& log) {
    arguments.push_back(absl::StrCat("--secret-file=", secret));
    Program& entry = programs_.emplace_back();
    entry.name = name;
    entry.path = absl::StrCat(options.program_directory, "/", program);
    entry.arguments = std::move(arguments);
    entry.log_file = absl::StrCat(options.state_directory, "/", log, ".log");
    entry.pause = options.min_restart_pause;
    // Each run of the cluster begins its logs anew.
    unlink(entry.log_file.c_str());
  };
  add("coordinator", "cairn-coordinator", options.coordinator_arguments, "coordinator");
  for (int32_t i = 0; i < options.num_workers; ++i) {
    add(absl::StrCat("worker ", i), "cairn-worker", options.worker_arguments,
        absl::StrCat("worker-", i));
  }
}

absl::StatusOr<LocalCluster> LocalCluster::Start(const Options& options,
                                                 std::function<void(const std::string&)> say) {
  RETURN_IF_ERROR(MakeDirectories(options.state_directory));
  const std::string lock_path = absl::StrCat(options.state_directory, "/lock");
  UniqueFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) {
    return absl::InternalError(absl::StrCat("cannot open ", lock_path, ": ", strerror(errno)));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another cairn serve uses ", options.state_directory,
                     ": stop it, or choose another --port or --state-dir"));
  }
  LocalCluster cluster(options, std::move(say), std::move(lock));
  for (Program& program : cluster.programs_) {
    if (access(program.path.c_str(), X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat("program missing: ", program.path));
    }
  }
  // Before any child looks for it.
  RETURN_IF_ERROR(
      ReadOrCreateSecretFile(absl::StrCat(options.state_directory, "/secret")).status());
  for (Program& program : cluster.programs_) RETURN_IF_ERROR(cluster.StartProgram(&program));
  return cluster;
}

absl::Status LocalCluster::StartProgram(Program* program) {
  ASSIGN_OR_RETURN(ChildProcess process,
                   ChildProcess::Start(program->path, program->arguments, program->log_file));
  program->process = std::move(process);
  program->started = clock_.Now();
  return absl::OkStatus();
}

absl::Status LocalCluster::Watch() {
  // Workers first: their reason is the better one.
  for (auto program = programs_.rbegin(); program != programs_.rend(); ++program) {
    RETURN_IF_ERROR(WatchProgram(&*program));
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::WatchProgram(Program* program) {
  const absl::Time now = clock_.Now();
  if (!program->process.has_value()) {
    return now >= program->restart_at ? StartProgram(program) : absl::OkStatus();
  }
  if (program->process->Running()) {
    if (now - program->started >= kGoodStart) {
      program->has_been_up = true;
      program->pause = options_.min_restart_pause;
    }
    return absl::OkStatus();
  }
  const std::string end = program->process->EndText();
  const std::optional<int> status = program->process->exit_status();
  const bool is_coordinator = program == &programs_.front();
  if (is_coordinator && status == 0) {
    drained_ = true;
    return absl::OkStatus();
  }
  // A coordinator that refuses its flags, its model or its port says so and exits.
  const bool for_good =
      is_coordinator ? status.has_value() && !program->has_been_up : status == kRefusedStatus;
  if (for_good) return absl::FailedPreconditionError(LastLine(program->log_file));
  say_(absl::StrFormat("%s (pid %d) ended: %s; it starts again in %.0f s, see %s", program->name,
                       program->process->pid(), end, absl::ToDoubleSeconds(program->pause),
                       program->log_file));
  program->process.reset();
  program->restart_at = now + program->pause;
  program->pause = std::min(program->pause * 2, options_.max_restart_pause);
  return absl::OkStatus();
}

bool LocalCluster::Owns(int64_t pid) const {
  return std::any_of(programs_.begin(), programs_.end(), [pid](const Program& program) {
    return program.process.has_value() && program.process->pid() == pid;
  });
}

void LocalCluster::SignalWorkers(int signal) {
  for (size_t i = 1; i < programs_.size(); ++i) {
    if (programs_[i].process.has_value()) programs_[i].process->Signal(signal);
  }
}

bool LocalCluster::AnyRunning() {
  return std::any_of(programs_.begin(), programs_.end(), [](Program& program) {
    return program.process.has_value() && program.process->Running();
  });
}

// False if the deadline passed or `hurry` says so.
bool LocalCluster::WaitUntilGone(Program* program, absl::Time deadline,
                                 const std::function<bool()>& hurry) {
  while (program != nullptr ? program->process.has_value() && program->process->Running()
                            : AnyRunning()) {
    if (clock_.Now() >= deadline || hurry()) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

void LocalCluster::Stop(const std::function<bool()>& hurry) {
  // The coordinator drains while the workers still compute; they end when it has.
  Program& coordinator = programs_.front();
  if (coordinator.process.has_value()) coordinator.process->Signal(SIGTERM);
  WaitUntilGone(&coordinator, clock_.Now() + options_.drain_limit + kKillAfter, hurry);
  SignalWorkers(SIGTERM);
  if (WaitUntilGone(nullptr, clock_.Now() + kKillAfter, hurry)) return;
  say_("some processes do not end: they are killed");
  for (Program& program : programs_) {
    if (program.process.has_value()) program.process->Signal(SIGKILL);
  }
  WaitUntilGone(nullptr, clock_.Now() + kKillAfter, [] { return false; });
}

}  // namespace cairn

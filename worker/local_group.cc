#include "worker/local_group.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "worker/collective.h"

namespace cairn {
namespace {

// All ranks load at the same time; the slowest disk and the largest model must fit.
constexpr absl::Duration kLoadTimeout = absl::Minutes(30);
constexpr absl::Duration kStepTimeout = absl::Seconds(60);

struct Member {
  std::unique_ptr<Rank> rank;
  std::unique_ptr<Collective> collective;
};

absl::StatusOr<Member> MakeMember(const Checkpoint& checkpoint, const ModelConfig& config,
                                  ResolvedRankOptions resolved, int index,
                                  const std::string& segment,
                                  std::function<void(const Rank::LoadProgress&)> on_progress) {
  resolved.options.rank = index;
  Member member;
  ASSIGN_OR_RETURN(member.rank, Rank::Load(checkpoint, config, resolved, std::move(on_progress)));
  if (resolved.options.size == 1) {
    member.rank->JoinGroup(nullptr);
    return member;
  }
  ASSIGN_OR_RETURN(member.collective,
                   NewShmCollective({.name = segment,
                                     .rank = index,
                                     .size = resolved.options.size,
                                     .epoch = 1,
                                     .max_message_bytes = resolved.max_message_bytes,
                                     .timeout = kLoadTimeout}));
  member.collective->SetTimeout(kStepTimeout);
  member.rank->JoinGroup(member.collective.get());
  return member;
}

class LocalGroupImpl : public LocalGroup {
 public:
  ~LocalGroupImpl() override {
    if (leader_.rank != nullptr && !failed_) {
      const absl::Status stopped = leader_.rank->StopFollowers();
      if (!stopped.ok()) LOG(WARNING) << "followers_not_stopped error=" << stopped.message();
    }
    leader_ = {};  // gives the group up, so that followers that still wait learn of it
    for (std::thread& thread : threads_) thread.join();
    for (const pid_t child : children_) {
      if (failed_) kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  absl::StatusOr<StepResult> Run(const StepPlan& plan) override {
    absl::StatusOr<StepResult> result = leader_.rank->Run(plan);
    if (!result.ok()) failed_ = true;
    return result;
  }
  Rank& leader() override { return *leader_.rank; }

  absl::Status Form(const Checkpoint& checkpoint, const ModelConfig& config,
                    const ResolvedRankOptions& resolved, FollowerPlace place,
                    std::function<void(const Rank::LoadProgress&)> on_progress) {
    static std::atomic<int> next_group{0};
    const std::string segment = absl::StrFormat("/cairn-local-%d-%d-%d", getpid(), next_group++,
                                                absl::ToUnixNanos(absl::Now()));
    for (int index = 1; index < resolved.options.size; ++index) {
      const auto follow = [&checkpoint, config, resolved, index, segment] {
        absl::StatusOr<Member> member =
            MakeMember(checkpoint, config, resolved, index, segment, nullptr);
        return member.ok() ? member->rank->Follow() : member.status();
      };
      if (place == FollowerPlace::kThreads) {
        threads_.emplace_back([follow, index] {
          const absl::Status status = follow();
          if (!status.ok())
            LOG(WARNING) << "follower_ended rank=" << index << " error=" << status.message();
        });
        continue;
      }
      const pid_t child = fork();
      if (child < 0) return absl::ResourceExhaustedError("cannot start a process for a rank");
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        SetMinLogSeverity(LogSeverity::kError);
        _exit(follow().ok() ? 0 : 1);
      }
      children_.push_back(child);
    }
    absl::StatusOr<Member> leader =
        MakeMember(checkpoint, config, resolved, 0, segment, std::move(on_progress));
    if (!leader.ok()) {
      failed_ = true;
      return leader.status();
    }
    leader_ = std::move(*leader);
    return absl::OkStatus();
  }

 private:
  Member leader_;
  bool failed_ = false;
  std::vector<std::thread> threads_;
  std::vector<pid_t> children_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Start(
    const Checkpoint& checkpoint, const ModelConfig& config, const ResolvedRankOptions& resolved,
    FollowerPlace place, std::function<void(const Rank::LoadProgress&)> on_progress) {
  auto group = std::make_unique<LocalGroupImpl>();
  RETURN_IF_ERROR(group->Form(checkpoint, config, resolved, place, std::move(on_progress)));
  return group;
}

}  // namespace cairn

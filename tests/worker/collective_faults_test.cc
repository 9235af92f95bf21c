// Ranks that are killed, stopped or end in the middle of calls: every other rank learns of it in
// time, and the survivors form a new group with a replacement.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/worker/open_descriptors.h"
#include "tests/worker/rank_group.h"
#include "worker/collective.h"
#include "worker/deadline.h"

namespace cairn {
namespace {

// What the victim's peers are doing when it happens.
enum class Work { kSmallMessages, kLargeSums, kWaiting };
enum class Fault { kKilled, kExited, kStopped };

struct Case {
  Backend backend;
  int size;
  int victim;
  Work work;
  Fault fault;
};

std::string CaseName(const testing::TestParamInfo<Case>& tested) {
  const Case& c = tested.param;
  constexpr const char* kWorks[] = {"SmallMessages", "LargeSums", "Waiting"};
  constexpr const char* kFaults[] = {"Killed", "Exited", "Stopped"};
  return absl::StrCat(BackendName(c.backend), "Size", c.size, "Rank", c.victim,
                      kFaults[static_cast<int>(c.fault)], "In", kWorks[static_cast<int>(c.work)]);
}

constexpr int kMaxRanks = 4;
constexpr absl::Duration kStoppedTimeout = absl::Seconds(2);
// Calls of the victim before it happens.
constexpr int64_t kNumCalls = 8;
// From the fault to the error on the last of the others. The sanitizers make everything slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr absl::Duration kAllowed = absl::Seconds(10);
#else
constexpr absl::Duration kAllowed = absl::Seconds(2);
#endif

// What the processes tell the test, in memory that they share.
struct Report {
  std::atomic<int64_t> num_calls[kMaxRanks];
  std::atomic<int64_t> failed_at_ns[kMaxRanks];
  char message[kMaxRanks][300];
  std::atomic<int> exits;  // set: the victim ends itself
};

class CollectiveFaultsTest : public testing::TestWithParam<Case> {
 protected:
  CollectiveFaultsTest()
      : report_(static_cast<Report*>(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        first_(GroupOptions(1)),
        second_(GroupOptions(2)) {}
  ~CollectiveFaultsTest() override { munmap(report_, sizeof(Report)); }

  static RankGroup::Options GroupOptions(uint64_t epoch) {
    return {.backend = GetParam().backend,
            .size = GetParam().size,
            .epoch = epoch,
            .max_message_bytes = 1 << 16,
            .timeout = absl::Seconds(60)};
  }

  // Calls until one fails.
  absl::Status WorkUntilFailure(Collective& collective) {
    std::vector<float> x(GetParam().work == Work::kLargeSums ? 300000 : 0);
    const bool is_victim = collective.rank() == GetParam().victim;
    while (true) {
      absl::Status status;
      if (GetParam().work == Work::kLargeSums) {
        status = collective.AllReduceSum(x);
      } else {
        status = collective.AllGatherV(collective.rank() * 1000);
      }
      if (!status.ok()) return status;
      const int64_t num_calls = ++report_->num_calls[collective.rank()];
      if (is_victim && report_->exits == 1) _exit(0);
      // The others now wait in their next call.
      if (is_victim && GetParam().work == Work::kWaiting && num_calls == kNumCalls) pause();
    }
  }

  void RunRank(int rank) {
    first_.CloseListenersBut(rank);
    second_.CloseListenersBut(rank);
    const int num_descriptors = CountDescriptors();
    {
      absl::StatusOr<std::unique_ptr<Collective>> collective = first_.Join(rank);
      ASSERT_TRUE(collective.ok()) << collective.status();
      if (GetParam().fault == Fault::kStopped) (*collective)->SetTimeout(kStoppedTimeout);
      const absl::Status status = WorkUntilFailure(**collective);
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      snprintf(report_->message[rank], sizeof report_->message[rank], "%s",
               std::string(status.message()).c_str());
      report_->failed_at_ns[rank] = absl::GetCurrentTimeNanos();
      EXPECT_EQ((*collective)->Barrier(), status);
    }
    // A TCP group has closed the listener it was given.
    const bool had_listener = GetParam().backend != Backend::kShm;
    EXPECT_EQ(CountDescriptors(), num_descriptors - (had_listener ? 1 : 0));
    JoinSecondGroup(rank);
  }

  void JoinSecondGroup(int rank) {
    absl::StatusOr<std::unique_ptr<Collective>> collective = second_.Join(rank);
    ASSERT_TRUE(collective.ok()) << collective.status();
    std::vector<float> x(100000, 1.0f);
    const absl::Status status = (*collective)->AllReduceSum(x);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(x.back(), static_cast<float>(GetParam().size));
  }

  // Does it to the victim; returns when it is done.
  void Inflict(pid_t victim) {
    const Deadline deadline = Deadline::After(absl::Seconds(60));
    while (report_->num_calls[GetParam().victim] < kNumCalls && !deadline.Passed()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (GetParam().work == Work::kWaiting) absl::SleepFor(absl::Milliseconds(50));
    int status = 0;
    switch (GetParam().fault) {
      case Fault::kKilled:
        kill(victim, SIGKILL);
        waitpid(victim, &status, 0);
        break;
      case Fault::kExited:
        report_->exits = 1;
        waitpid(victim, &status, 0);
        break;
      case Fault::kStopped:
        kill(victim, SIGSTOP);
        waitpid(victim, &status, WUNTRACED);
        break;
    }
  }

  Report* const report_;
  RankGroup first_;
  RankGroup second_;
};

TEST_P(CollectiveFaultsTest, AllOthersAreUnavailableInTimeAndFormANewGroup) {
  const Case& tested = GetParam();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < tested.size; ++rank) {
    ranks.push_back(ForkRank([&] { RunRank(rank); }));
  }
  const int64_t start_ns = absl::GetCurrentTimeNanos();
  Inflict(ranks[tested.victim]);
  const int64_t inflicted_ns = absl::GetCurrentTimeNanos();
  const pid_t replacement = ForkRank([&] {
    second_.CloseListenersBut(tested.victim);
    JoinSecondGroup(tested.victim);
  });
  second_.CloseListenersBut(-1);
  for (int rank = 0; rank < tested.size; ++rank) {
    if (rank != tested.victim) ExpectCleanExit(ranks[rank]);
  }
  ExpectCleanExit(replacement);
  if (tested.fault == Fault::kStopped) {
    kill(ranks[tested.victim], SIGKILL);
    waitpid(ranks[tested.victim], nullptr, 0);
  }

  absl::Duration allowed = kAllowed;
  if (tested.fault == Fault::kStopped) allowed += kStoppedTimeout;
  for (int rank = 0; rank < tested.size; ++rank) {
    if (rank == tested.victim) continue;
    const std::string message = report_->message[rank];
    EXPECT_GE(report_->failed_at_ns[rank], start_ns) << "rank " << rank;
    EXPECT_LT(absl::Nanoseconds(report_->failed_at_ns[rank] - inflicted_ns), allowed)
        << "rank " << rank << ": " << message;
    if (tested.backend == Backend::kShm || tested.size == 2) {
      EXPECT_TRUE(absl::StrContains(message, absl::StrCat("rank ", tested.victim, " (")))
          << message;
    } else {
      // With connections of their own, two survivors may also learn it from each other's end.
      EXPECT_TRUE(absl::StrContains(message, "rank ")) << message;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Backend backend : {Backend::kShm, Backend::kTcp}) {
    for (const Work work : {Work::kSmallMessages, Work::kLargeSums, Work::kWaiting}) {
      for (const Fault fault : {Fault::kKilled, Fault::kExited, Fault::kStopped}) {
        // One who waits does not end itself.
        if (fault == Fault::kExited && work == Work::kWaiting) continue;
        cases.push_back({backend, 2, 0, work, fault});
        cases.push_back({backend, 3, 1, work, fault});
        cases.push_back({backend, 4, 3, work, fault});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Groups, CollectiveFaultsTest, testing::ValuesIn(Cases()), CaseName);

// A rank that dies while the group forms, and one that comes never.
class FormationFaultsTest : public testing::TestWithParam<Backend> {};

constexpr absl::Duration kFormationTimeout = absl::Seconds(60);
// A death is noticed in seconds, not at the timeout.
const absl::Duration kNoticed = absl::Seconds(3) + kAllowed;

TEST_P(FormationFaultsTest, ARankKilledWhileTheGroupFormsIsUnavailableOnTheOthersWithinSeconds) {
  RankGroup group(
      RankGroup::Options{.backend = GetParam(), .size = 3, .timeout = kFormationTimeout});
  const auto join = [&](int rank) {
    return ForkRank([&group, rank] {
      group.CloseListenersBut(rank);
      const absl::Time start = absl::Now();
      const absl::Status status = group.Join(rank).status();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("while the group formed"));
      EXPECT_LT(absl::Now() - start, kNoticed);
    });
  };
  const pid_t creator = join(0);
  const pid_t victim = join(1);
  group.CloseListenersBut(-1);
  absl::SleepFor(absl::Milliseconds(300));
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  ExpectCleanExit(creator);
}

TEST_P(FormationFaultsTest, ACreatorKilledWhileTheGroupFormsIsUnavailableOnTheOthers) {
  RankGroup group(
      RankGroup::Options{.backend = GetParam(), .size = 3, .timeout = kFormationTimeout});
  const pid_t creator = ForkRank([&] {
    group.CloseListenersBut(0);
    group.Join(0).IgnoreError();
  });
  const pid_t other = ForkRank([&] {
    group.CloseListenersBut(1);
    const absl::Time start = absl::Now();
    const absl::Status status = group.Join(1).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("while the group formed"));
    EXPECT_LT(absl::Now() - start, kNoticed);
  });
  group.CloseListenersBut(-1);
  absl::SleepFor(absl::Milliseconds(300));
  kill(creator, SIGKILL);
  waitpid(creator, nullptr, 0);
  ExpectCleanExit(other);
  // Nothing stays in /dev/shm.
  const UniqueFd segment(shm_open(group.name().c_str(), O_RDONLY, 0));
  EXPECT_FALSE(segment.valid());
}

INSTANTIATE_TEST_SUITE_P(Backends, FormationFaultsTest,
                         testing::Values(Backend::kShm, Backend::kTcp),
                         [](const testing::TestParamInfo<Backend>& tested) {
                           return BackendName(tested.param);
                         });

}  // namespace
}  // namespace cairn

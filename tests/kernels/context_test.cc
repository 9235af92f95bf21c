#include "kernels/context.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu_kernels.h"
#include "machine.h"

namespace cairn {
namespace {

TEST(ChooseIsaTest, AutoIsTheWidestOfThisMachine) {
  const auto isa = ChooseIsa("auto");
  ASSERT_TRUE(isa.ok()) << isa.status();
  EXPECT_EQ(*isa, IsasOfThisMachine().back());
}

TEST(ChooseIsaTest, NamesComeBack) {
  for (const Isa isa : IsasOfThisMachine()) {
    const auto again = ChooseIsa(IsaName(isa));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, isa);
    EXPECT_EQ(CpuKernelsFor(isa).name, IsaName(isa));
  }
}

TEST(ChooseIsaTest, RefusesAnUnknownNameWithTheKnownOnes) {
  const auto isa = ChooseIsa("sse4");
  EXPECT_EQ(isa.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(isa.status().message()).find("avx2, avx512"), std::string::npos);
}

TEST(ChooseIsaTest, RefusesWhatThisMachineLacks) {
  if (IsasOfThisMachine().size() == 2) GTEST_SKIP() << "this machine has AVX-512";
  EXPECT_EQ(ChooseIsa("avx512").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SplitTest, PartsAreContiguousAndNearlyEqual) {
  for (const int64_t n : {0, 1, 2, 7, 64, 1000}) {
    for (const int64_t parts : {1, 2, 3, 7, 16}) {
      int64_t next = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range range = Split(n, parts, i);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), n / parts);
        EXPECT_LE(range.size(), n / parts + 1);
        next = range.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(ThreadTeamTest, RefusesNumbersOutOfRangeNamingTheLimit) {
  for (const int threads : {0, -1, ThreadTeam::kMaxThreads + 1}) {
    const auto team = ThreadTeam::Create({.num_threads = threads});
    EXPECT_EQ(team.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(team.status().message()).find("max=256"), std::string::npos);
  }
}

cpu_set_t OwnProcessors() {
  cpu_set_t own;
  CPU_ZERO(&own);
  EXPECT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  return own;
}

// Puts the calling thread on `processor`, from where it may move at once.
void PutOn(int processor) {
  const cpu_set_t own = OwnProcessors();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(sched_setaffinity(0, sizeof(own), &own), 0);
}

TEST(ThreadTeamTest, ThreadsOnOneProcessorPartAndKeepAllOfThem) {
  const cpu_set_t all = OwnProcessors();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one processor";
  auto team = NewTeam(2, Isa::kAvx2);
  for (int round = 0; round < 20; ++round) {
    int processors[2] = {0, 0};
    std::atomic<bool> done = false;
    team->Run([&](const Context& context) {
      if (context.thread() == 0) processors[0] = sched_getcpu();
      context.Sync();
      if (context.thread() == 1) PutOn(processors[0]);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!done.load()) {
        context.Sync();
        processors[context.thread()] = sched_getcpu();
        context.Sync();
        if (context.thread() == 0) {
          const bool parted = processors[0] != processors[1];
          EXPECT_TRUE(parted || std::chrono::steady_clock::now() < deadline) << round;
          done = parted || std::chrono::steady_clock::now() >= deadline;
        }
        context.Sync();
      }
      const cpu_set_t own = OwnProcessors();
      EXPECT_TRUE(CPU_EQUAL(&own, &all)) << "thread " << context.thread();
    });
  }
}

TEST(ThreadTeamTest, RunsTheWorkOnceOnEveryThread) {
  for (const int threads : {1, 2, 3, 8}) {
    auto team = NewTeam(threads, Isa::kAvx2);
    EXPECT_EQ(team->num_threads(), threads);
    std::vector<int> runs(threads, 0);  // each thread writes its own
    for (int i = 0; i < 50; ++i) {
      team->Run([&](const Context& context) {
        EXPECT_EQ(context.num_threads(), threads);
        ++runs[context.thread()];
      });
    }
    EXPECT_EQ(runs, std::vector<int>(threads, 50));
  }
}

// Every thread reads what all the others wrote before the barrier. The numbers are plain ints: a
// thread that leaves too early reads an old one, and is a race under TSan. More threads than cores,
// so that sleeping and waking take part.
TEST(ThreadTeamTest, NobodyLeavesSyncBeforeAllHaveCome) {
  for (const int threads : {2, 3, 9}) {
    auto team = NewTeam(threads, Isa::kAvx2);
    std::vector<int> written(threads, 0);
    std::atomic<int> wrong{0};
    constexpr int kRounds = 500;
    team->Run([&](const Context& context) {
      for (int round = 1; round <= kRounds; ++round) {
        written[context.thread()] = round;
        context.Sync();
        for (const int value : written) wrong += value != round;
        context.Sync();
      }
    });
    EXPECT_EQ(wrong, 0) << threads;
  }
}

// A thread that comes late finds the others asleep (they spin for microseconds only).
TEST(ThreadTeamTest, WakesSleepersHoweverLateTheLastOneComes) {
  auto team = NewTeam(4, Isa::kAvx2);
  for (int round = 0; round < 8; ++round) {
    int sum = 0;
    team->Run([&](const Context& context) {
      if (context.thread() == round % 4) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
        while (std::chrono::steady_clock::now() < end) {
        }
        sum = 42 + round;
      }
      context.Sync();
      EXPECT_EQ(sum, 42 + round);
    });
  }
}

TEST(ThreadTeamTest, SharesCoverEverythingOnce) {
  auto team = NewTeam(3, Isa::kAvx2);
  std::vector<int> touched(1000, 0);
  team->Run([&](const Context& context) {
    const Range mine = context.Share(static_cast<int64_t>(touched.size()));
    for (int64_t i = mine.begin; i < mine.end; ++i) ++touched[i];
  });
  EXPECT_EQ(touched, std::vector<int>(1000, 1));
}

TEST(ThreadTeamTest, TheLargestTeamWorks) {
  auto team = NewTeam(ThreadTeam::kMaxThreads, Isa::kAvx2);
  std::vector<int> runs(ThreadTeam::kMaxThreads, 0);
  team->Run([&](const Context& context) { ++runs[context.thread()]; });
  EXPECT_EQ(runs, std::vector<int>(ThreadTeam::kMaxThreads, 1));
}

TEST(ThreadTeamTest, TeamsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    auto team = NewTeam(1 + i % 5, Isa::kAvx2);
    if (i % 2 == 0) team->Run([](const Context&) {});
  }
}

// In a process that may have few threads. The limit does not bind root, and counts every process of
// a user.
int CodeOfALargeTeamUnderALimit() {
  const bool was_root = geteuid() == 0;
  if (was_root && setuid(65534) != 0) return -1;
  const rlim_t threads = was_root ? 20 : 1;
  rlimit limit;
  limit.rlim_cur = limit.rlim_max = threads;
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) return -1;
  const auto team = ThreadTeam::Create({.num_threads = ThreadTeam::kMaxThreads});
  return static_cast<int>(team.status().code());
}

// Those that did start are joined, nothing hangs.
TEST(ThreadTeamDeathTest, AThreadThatCannotStartIsResourceExhausted) {
  EXPECT_EXIT(std::_Exit(CodeOfALargeTeamUnderALimit()),
              testing::ExitedWithCode(static_cast<int>(absl::StatusCode::kResourceExhausted)), "");
}

}  // namespace
}  // namespace cairn

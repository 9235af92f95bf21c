#include "coordinator/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/cluster_driver.h"

namespace cairn {
namespace {

using testing::HasSubstr;

absl::StatusOr<Cluster::Placement> PlaceOne(Cluster* cluster, JobId job, int64_t tokens = 10) {
  return cluster->Place(std::vector<JobId>{job}, tokens);
}

TEST(ClusterTest, ServesWhenEveryRankIsReady) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Settle();
  EXPECT_FALSE(driver.cluster.serving());
  driver.Attach(2);
  driver.Settle();
  EXPECT_TRUE(driver.cluster.serving());
  EXPECT_EQ(driver.cluster.Status(driver.now).waiting_for, "");
  EXPECT_EQ(driver.cluster.max_request_tokens(), 64);
}

TEST(ClusterTest, NamesTheRankThatIsWaitedFor) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  EXPECT_EQ(driver.cluster.Status(driver.now).waiting_for,
            "waiting for rank 0, 1 of 2 of model tiny");
  driver.Attach(1);
  driver.Settle();
  EXPECT_EQ(driver.cluster.Status(driver.now).waiting_for, "waiting for rank 1 of 2 of model tiny");
  EXPECT_EQ(PlaceOne(&driver.cluster, 7).status(),
            absl::UnavailableError("waiting for rank 1 of 2 of model tiny"));
}

TEST(ClusterTest, ShowsHowFarLoadingIs) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Receive(1, LoadingMessage{.bytes_done = 30, .bytes_total = 100});
  driver.Receive(2, LoadingMessage{.bytes_done = 50, .bytes_total = 100});
  const ClusterStatus status = driver.cluster.Status(driver.now);
  EXPECT_DOUBLE_EQ(status.loading, 0.4);
  EXPECT_EQ(status.waiting_for, "loading model tiny: 40 % (rank 0: 30 %, rank 1: 50 %)");
}

TEST(ClusterTest, LoadsOnlyWhenAllRanksOfTheGroupAreThere) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  EXPECT_TRUE(driver.workers[1].inbox.empty());
  driver.Attach(2);
  ASSERT_EQ(driver.workers[1].inbox.size(), 1u);
  const auto* assign = std::get_if<AssignMessage>(&driver.workers[1].inbox[0]);
  ASSERT_NE(assign, nullptr);
  EXPECT_EQ(assign->ranks_on_host, 2);
}

TEST(ClusterTest, UsesSharedMemoryOnOneHostAndTcpAcrossHosts) {
  ClusterDriver one(TestClusterOptions(1, 2));
  one.Attach(1);
  one.Attach(2);
  one.Settle();
  ASSERT_EQ(one.forms.size(), 1u);
  EXPECT_EQ(one.forms.begin()->second[0].shm_name, "/cairn-run-0-64");

  ClusterDriver two(TestClusterOptions(1, 2));
  two.Attach(1, ClusterDriver::Info(1, "a"));
  two.Attach(2, ClusterDriver::Info(2, "b"));
  two.Settle();
  EXPECT_TRUE(two.cluster.serving());
  ASSERT_EQ(two.forms.size(), 1u);
  EXPECT_THAT(two.forms.begin()->second[0].addresses,
              testing::ElementsAre("10.0.0.1:1001", "10.0.0.2:1002"));
  EXPECT_EQ(two.forms.begin()->second[0].shm_name, "");
}

TEST(ClusterTest, RefusesLoopbackAddressesAcrossHosts) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  RegisterMessage far = ClusterDriver::Info(2, "b");
  RegisterMessage near = ClusterDriver::Info(1, "a");
  near.address = "127.0.0.1";
  driver.Attach(1, near);
  driver.Attach(2, far);
  driver.Settle();
  EXPECT_FALSE(driver.cluster.serving());
  EXPECT_THAT(driver.cluster.Status(driver.now).groups[0].last_failure, HasSubstr("127.0.0.1"));
  EXPECT_THAT(driver.cluster.Status(driver.now).waiting_for, HasSubstr("rank 0"));
}

TEST(ClusterTest, RefusesRanksWhoseWeightsDiffer) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Receive(1, LoadedMessage{.threads = 1, .max_request_tokens = 64, .identity = "a"});
  driver.Receive(2, LoadedMessage{.threads = 1, .max_request_tokens = 64, .identity = "b"});
  EXPECT_TRUE(driver.forms.empty());
  EXPECT_THAT(driver.cluster.Status(driver.now).waiting_for, HasSubstr("weights differ"));
}

TEST(ClusterTest, ReleasesAWorkerOfAnotherModelOrVersion) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  RegisterMessage info = ClusterDriver::Info(1);
  info.model_digest = "other";
  driver.Attach(1, info);
  driver.Settle();
  EXPECT_TRUE(driver.workers[1].released);
  EXPECT_TRUE(driver.workers[1].dropped);
  info = ClusterDriver::Info(2);
  info.version = kControlVersion + 1;
  driver.Attach(2, info);
  driver.Settle();
  EXPECT_TRUE(driver.workers[2].released);
  EXPECT_EQ(driver.cluster.num_members(), 0u);
}

TEST(ClusterTest, EndsJobsWithTheFirstCauseWhenARankIsLost) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 7).ok());
  driver.Kill(2);
  ASSERT_EQ(driver.ended_jobs.size(), 1u);
  EXPECT_EQ(driver.ended_jobs[0].first, 7u);
  EXPECT_EQ(driver.ended_jobs[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.ended_jobs[0].second.message()),
              HasSubstr("rank 1 of 2 of group 0 (worker-2 at 127.0.0.1) lost: its connection"));
  EXPECT_FALSE(driver.cluster.serving());
  EXPECT_FALSE(driver.cluster.FindJob(7).has_value());
}

TEST(ClusterTest, MeetsAgainUnderALargerEpochWhenTheLostRankIsReplaced) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  const uint64_t epoch = driver.cluster.Status(driver.now).groups[0].epoch;
  driver.Kill(2);
  driver.SettleLater();
  EXPECT_FALSE(driver.cluster.serving());
  driver.Attach(3);
  driver.SettleLater();
  EXPECT_TRUE(driver.cluster.serving());
  const ClusterStatus status = driver.cluster.Status(driver.now);
  EXPECT_GT(status.groups[0].epoch, epoch);
  EXPECT_EQ(status.groups[0].ranks[0].worker, "worker-1");
  EXPECT_EQ(status.groups[0].ranks[1].worker, "worker-3");
}

TEST(ClusterTest, GivesAReturningWorkerThePlaceItHasLoaded) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  RegisterMessage info = ClusterDriver::Info(1);
  info.group = 0;
  info.rank = 1;
  info.size = 2;
  driver.Attach(1, info);
  driver.Attach(2);
  driver.Settle();
  const ClusterStatus status = driver.cluster.Status(driver.now);
  EXPECT_EQ(status.groups[0].ranks[1].worker, "worker-1");
  EXPECT_EQ(status.groups[0].ranks[0].worker, "worker-2");
}

TEST(ClusterTest, PutsRanksOfOneHostIntoOneGroup) {
  ClusterDriver driver(TestClusterOptions(2, 2));
  driver.Attach(1, ClusterDriver::Info(1, "a"));
  driver.Attach(2, ClusterDriver::Info(2, "a"));
  driver.Attach(3, ClusterDriver::Info(3, "b"));
  driver.Attach(4, ClusterDriver::Info(4, "b"));
  driver.Settle();
  for (const GroupStatus& group : driver.cluster.Status(driver.now).groups) {
    EXPECT_EQ(group.collective, "shm");
  }
}

TEST(ClusterTest, PromotesASpareWhenAPlaceBecomesFree) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  EXPECT_EQ(driver.cluster.Status(driver.now).spares.size(), 1u);
  driver.Kill(1);
  driver.SettleLater();
  EXPECT_TRUE(driver.cluster.serving());
  EXPECT_EQ(driver.cluster.Status(driver.now).groups[0].ranks[0].worker, "worker-2");
}

TEST(ClusterTest, ReplacesAMemberThatAttachesAnew) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  RegisterMessage again = driver.workers[1].info;
  driver.Attach(2, again);
  driver.SettleLater();
  EXPECT_TRUE(driver.workers[1].dropped);
  EXPECT_TRUE(driver.cluster.serving());
  EXPECT_EQ(driver.cluster.num_members(), 1u);
}

TEST(ClusterTest, LosesAMemberThatIsSilentForTheHeartbeatTimeout) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  for (int i = 0; i < 49; ++i) driver.Advance(absl::Seconds(0.1));
  EXPECT_TRUE(driver.cluster.serving());
  for (int i = 0; i < 2; ++i) driver.Advance(absl::Seconds(0.1));
  EXPECT_FALSE(driver.cluster.serving());
  EXPECT_TRUE(driver.workers[1].dropped);
  EXPECT_THAT(driver.cluster.Status(driver.now).waiting_for, HasSubstr("not heard from for 5 s"));
}

TEST(ClusterTest, BlamesNobodyForItsOwnPause) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  driver.Advance(absl::Seconds(1));
  driver.Advance(absl::Seconds(60));
  EXPECT_TRUE(driver.cluster.serving());
  for (int i = 0; i < 6; ++i) driver.Advance(absl::Seconds(1));
  EXPECT_FALSE(driver.cluster.serving()) << "silence after the pause counts";
}

TEST(ClusterTest, EndsAGroupWhoseLeaderMakesNoProgress) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 7).ok());
  for (int i = 0; i < 119; ++i) {
    driver.Receive(1, HeartbeatMessage{.epoch = 100, .num_running = 1, .num_steps = 3});
    driver.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(driver.ended_jobs.empty());
  for (int i = 0; i < 5; ++i) {
    driver.Receive(1, HeartbeatMessage{.epoch = 100, .num_running = 1, .num_steps = 3});
    driver.Advance(absl::Seconds(1));
  }
  ASSERT_EQ(driver.ended_jobs.size(), 1u);
  EXPECT_THAT(std::string(driver.ended_jobs[0].second.message()), HasSubstr("no step finished"));
}

TEST(ClusterTest, GivesUpAFormationThatTakesTooLongAndTriesAgain) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Step(1);
  driver.Step(2);
  driver.Step(1);
  ASSERT_EQ(driver.forms.size(), 1u);
  // Worker 1 is ready, worker 2 never answers Form.
  for (int i = 0; i < 31; ++i) {
    for (const MemberId id : {1, 2}) driver.Receive(id, HeartbeatMessage{});
    driver.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(driver.cluster.Status(driver.now).groups[0].last_failure,
              HasSubstr("did not meet within 30 s: rank 1 of 2"));
  driver.SettleLater();
  EXPECT_TRUE(driver.cluster.serving());
}

TEST(ClusterTest, DropsAMemberThatDoesNotLeaveItsGroup) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  driver.Kill(2);
  for (int i = 0; i < 31; ++i) {
    driver.Receive(1, HeartbeatMessage{});
    driver.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(driver.workers[1].dropped);
  EXPECT_THAT(std::string(driver.workers[1].drop_cause.message()), HasSubstr("did not leave"));
}

TEST(ClusterTest, IgnoresMessagesOfAnEpochThatIsOver) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  driver.Receive(1, LeftMessage{.epoch = 99, .cause = "old"});
  driver.Receive(1, ReadyMessage{.epoch = 99});
  EXPECT_TRUE(driver.cluster.serving());
}

TEST(ClusterTest, EndsTheEpochWhenARankLeavesByItself) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 7).ok());
  driver.workers[1].epoch = 0;
  driver.Receive(1, LeftMessage{.epoch = 100, .cause = "rank 1 has not arrived"});
  ASSERT_EQ(driver.ended_jobs.size(), 1u);
  EXPECT_THAT(std::string(driver.ended_jobs[0].second.message()),
              HasSubstr("left: rank 1 has not arrived"));
  driver.SettleLater();
  EXPECT_TRUE(driver.cluster.serving());
}

TEST(ClusterTest, SendsARequestToTheGroupWithTheFewestTokens) {
  ClusterDriver driver(TestClusterOptions(2, 1));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  EXPECT_EQ(PlaceOne(&driver.cluster, 1, 100)->group, 0);
  EXPECT_EQ(PlaceOne(&driver.cluster, 2, 30)->group, 1);
  EXPECT_EQ(PlaceOne(&driver.cluster, 3, 30)->group, 1);
  EXPECT_EQ(PlaceOne(&driver.cluster, 4, 50)->group, 1);
  EXPECT_EQ(PlaceOne(&driver.cluster, 5, 50)->group, 0);
  EXPECT_TRUE(driver.cluster.AcceptEvent(2, 4, true, driver.now));
  EXPECT_EQ(PlaceOne(&driver.cluster, 6, 1)->group, 1);
}

TEST(ClusterTest, KeepsChoicesOfOneRequestTogether) {
  ClusterDriver driver(TestClusterOptions(2, 1));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  const std::vector<JobId> jobs = {16, 17, 18};
  ASSERT_TRUE(driver.cluster.Place(jobs, 10).ok());
  for (const JobId job : jobs) EXPECT_EQ(driver.cluster.FindJob(job)->group, 0);
}

TEST(ClusterTest, AcceptsEventsOnlyFromTheLeaderOfTheJob) {
  ClusterDriver driver(TestClusterOptions(1, 2));
  driver.Attach(1);
  driver.Attach(2);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 7).ok());
  EXPECT_FALSE(driver.cluster.AcceptEvent(2, 7, false, driver.now));
  EXPECT_FALSE(driver.cluster.AcceptEvent(1, 8, false, driver.now));
  EXPECT_TRUE(driver.cluster.AcceptEvent(1, 7, true, driver.now));
  EXPECT_FALSE(driver.cluster.AcceptEvent(1, 7, true, driver.now));
}

TEST(ClusterTest, RefusesRequestsBeyondTheLimit) {
  ClusterOptions options = TestClusterOptions(1, 1);
  options.max_jobs = 2;
  ClusterDriver driver(options);
  driver.Attach(1);
  driver.Settle();
  EXPECT_TRUE(PlaceOne(&driver.cluster, 1).ok());
  EXPECT_TRUE(PlaceOne(&driver.cluster, 2).ok());
  EXPECT_EQ(PlaceOne(&driver.cluster, 3).status(),
            absl::ResourceExhaustedError("choices in flight: 2 of at most 2"));
}

TEST(ClusterTest, DrainsWhenTheLastRequestHasEnded) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 1).ok());
  driver.cluster.Drain();
  EXPECT_FALSE(driver.cluster.drained());
  EXPECT_EQ(PlaceOne(&driver.cluster, 2).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(driver.cluster.AcceptEvent(1, 1, true, driver.now));
  EXPECT_TRUE(driver.cluster.drained());
}

TEST(ClusterTest, ReleasesALeavingWorkerWhenItsGroupHasFinished) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Settle();
  ASSERT_TRUE(PlaceOne(&driver.cluster, 1).ok());
  driver.Receive(1, LeavingMessage{});
  driver.Settle();
  EXPECT_FALSE(driver.workers[1].released);
  EXPECT_FALSE(driver.cluster.serving());
  EXPECT_FALSE(PlaceOne(&driver.cluster, 2).ok());
  EXPECT_TRUE(driver.cluster.AcceptEvent(1, 1, true, driver.now));
  driver.Advance(absl::Milliseconds(200));
  driver.Settle();
  EXPECT_TRUE(driver.workers[1].released);
  EXPECT_EQ(driver.cluster.num_members(), 0u);
}

TEST(ClusterTest, ShowsWhyAWorkerRefusedItsRank) {
  ClusterDriver driver(TestClusterOptions(1, 1));
  driver.Attach(1);
  driver.Receive(1, RefusedMessage{.cause = "more ranks than query heads"});
  EXPECT_TRUE(driver.workers[1].dropped);
  EXPECT_THAT(driver.cluster.Status(driver.now).waiting_for,
              HasSubstr("cannot serve its rank: more ranks than query heads"));
}

// Random deaths, joins, silences, requests and late answers, against what must always hold.
class ClusterWalkTest : public testing::TestWithParam<int> {};

TEST_P(ClusterWalkTest, AlwaysRecoversAndLosesNoJob) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  SCOPED_TRACE(absl::StrCat("seed ", GetParam()));
  const int groups = 1 + static_cast<int>(random() % 3), size = 1 + static_cast<int>(random() % 3);
  ClusterDriver driver(TestClusterOptions(groups, size));
  MemberId next_member = 1;
  JobId next_job = 1;
  std::set<JobId> open;
  uint64_t last_epoch = 0;
  const auto check = [&] {
    for (const auto& [job, cause] : driver.ended_jobs) {
      EXPECT_EQ(open.erase(job), 1u) << "a job ended twice, or was never placed: " << job;
      EXPECT_FALSE(cause.ok());
    }
    driver.ended_jobs.clear();
    for (const JobId job : open) EXPECT_TRUE(driver.cluster.FindJob(job).has_value());
    EXPECT_EQ(driver.cluster.Status(driver.now).num_jobs, static_cast<int32_t>(open.size()));
    for (const auto& [epoch, forms] : driver.forms) last_epoch = std::max(last_epoch, epoch);
    EXPECT_EQ(driver.cluster.serving(), driver.cluster.max_request_tokens() > 0);
  };
  const auto any_worker = [&]() -> MemberId {
    if (driver.workers.empty()) return 0;
    auto worker = driver.workers.begin();
    std::advance(worker, random() % driver.workers.size());
    return worker->first;
  };
  for (int step = 0; step < 2000; ++step) {
    const MemberId worker = any_worker();
    switch (random() % 10) {
      case 0:
        if (driver.workers.size() < static_cast<size_t>(groups * size + 2)) {
          driver.Attach(next_member, ClusterDriver::Info(static_cast<int>(next_member),
                                                         random() % 2 ? "a" : "b"));
          ++next_member;
        }
        break;
      case 1:
        if (worker != 0 && random() % 4 == 0) driver.Kill(worker);
        break;
      case 2:
        if (worker != 0 && driver.workers[worker].epoch != 0 && random() % 4 == 0) {
          const uint64_t epoch = std::exchange(driver.workers[worker].epoch, 0);
          driver.Receive(worker, LeftMessage{.epoch = epoch, .cause = "peer lost"});
        }
        break;
      case 3: {
        if (PlaceOne(&driver.cluster, next_job).ok()) open.insert(next_job);
        ++next_job;
        break;
      }
      case 4:
        if (!open.empty()) {
          const JobId job = *open.begin();
          const MemberId leader = driver.cluster.FindJob(job)->leader;
          EXPECT_TRUE(driver.cluster.AcceptEvent(leader, job, true, driver.now));
          open.erase(job);
        }
        break;
      case 5:
        driver.Advance(absl::Milliseconds(random() % 700));
        break;
      default:
        driver.Step(worker);
        break;
    }
    for (auto& [id, state] : driver.workers) {
      if (random() % 20 != 0) driver.Receive(id, HeartbeatMessage{.epoch = state.epoch});
    }
    check();
    std::erase_if(driver.workers, [](const auto& entry) { return entry.second.dropped; });
  }
  // From any state: with enough workers that answer, everything serves again.
  while (driver.workers.size() < static_cast<size_t>(groups * size)) {
    driver.Attach(next_member, ClusterDriver::Info(static_cast<int>(next_member), "a"));
    ++next_member;
  }
  for (int i = 0; i < 20; ++i) {
    driver.SettleLater();
    std::erase_if(driver.workers, [](const auto& entry) { return entry.second.dropped; });
    while (driver.workers.size() < static_cast<size_t>(groups * size)) {
      driver.Attach(next_member, ClusterDriver::Info(static_cast<int>(next_member), "a"));
      ++next_member;
    }
  }
  check();
  EXPECT_EQ(driver.cluster.Status(driver.now).waiting_for, "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, ClusterWalkTest, testing::Range(1, 25));

}  // namespace
}  // namespace cairn

// What a rank's host does when its group is given up while ranks still meet.
#include "worker/rank_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bounded_queue.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"
#include "worker/rank_loader.h"

namespace cairn {
namespace {

constexpr char kModel[] = CAIRN_TEST_DATA "/golden/models/llama/f32";
constexpr absl::Duration kTimeout = absl::Minutes(5);
// Much less than that, and more than a busy machine takes.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

// Rank 0 of two, or rank 1, whose peer never comes.
class RankHostTest : public testing::TestWithParam<bool> {
 protected:
  RankHostTest() {
    checkpoint_ = *Checkpoint::Open(kModel);
    config_ = *LoadModelConfig(*checkpoint_);
    TokenizerSpec spec;
    spec.tokens = {"a", "b"};
    spec.split_stages.push_back({std::string(kGpt2SplitPattern)});
    tokenizer_ = *Tokenizer::Create(std::move(spec));
    host_ = std::make_unique<RankHost>(
        RankHost::Options{.collective_timeout = kTimeout}, &secret_,
        NewRankLoader(checkpoint_.get(), &config_, tokenizer_.get(),
                      {.threads = 1, .cache_directory = ""}),
        RankHost::Callbacks{
            .on_loading = [](uint64_t, const Rank::LoadProgress&) {},
            .on_loaded =
                [this](uint64_t, const absl::StatusOr<LoadedMessage>& loaded) {
                  Tell(loaded.status());
                },
            .on_ready = [this](uint64_t, Engine*) { Tell(absl::InternalError("formed alone")); },
            .on_failed = [](uint64_t, const absl::Status&) {},
            .on_left = [this](uint64_t, const absl::Status& cause) { Tell(cause); }});
  }

  void Tell(absl::Status status) { (void)events_.TryPush(std::move(status)); }
  absl::Status NextEvent() {
    return events_.Pop(kAtOnce).value_or(absl::DeadlineExceededError("nothing happened"));
  }
  void StartForming(int32_t rank, uint64_t epoch) {
    AssignMessage assignment;
    assignment.rank = rank;
    assignment.size = 2;
    assignment.settings.kv_memory_bytes = 1 << 20;
    assignment.settings.context_tokens = 64;
    host_->Load(assignment, 1);
    const absl::Status loaded = NextEvent();
    ASSERT_TRUE(loaded.ok()) << loaded;
    FormMessage form{.epoch = epoch};
    int listener = -1;
    if (GetParam()) {
      form.shm_name = absl::StrCat("/cairn-test-host-", getpid());
    } else {
      absl::StatusOr<Listener> listens = ListenTcp("127.0.0.1", 0);
      ASSERT_TRUE(listens.ok()) << listens.status();
      listener = listens->fd;
      // Rank 1 dials an address where somebody listens who is not rank 0: its own.
      const std::string address = absl::StrCat("127.0.0.1:", listens->port);
      form.addresses = {address, address};
    }
    host_->Form(form, listener);
    absl::SleepFor(absl::Milliseconds(100));
  }

  const ClusterSecret secret_ = ClusterSecret::Random();
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  BoundedQueue<absl::Status> events_{64};
  std::unique_ptr<RankHost> host_;
};

TEST_P(RankHostTest, LeavingAGroupThatStillFormsDoesNotWaitForTheTimeout) {
  for (const int32_t rank : {0, 1}) {
    const uint64_t epoch = 9 + rank;
    ASSERT_NO_FATAL_FAILURE(StartForming(rank, epoch));
    host_->Leave(epoch - 1, absl::CancelledError("of an epoch before"));
    absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(events_.size(), 0u);
    host_->Leave(epoch, absl::UnavailableError("rank 1 is lost"));
    const absl::Status left = NextEvent();
    EXPECT_TRUE(absl::IsCancelled(left)) << left;
  }
}

TEST_P(RankHostTest, EndingWhileTheGroupStillFormsDoesNotWaitForTheTimeout) {
  ASSERT_NO_FATAL_FAILURE(StartForming(0, 1));
  const absl::Time start = absl::Now();
  host_.reset();
  EXPECT_LT(absl::Now() - start, kAtOnce);
}

INSTANTIATE_TEST_SUITE_P(Transports, RankHostTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& tested) {
                           return tested.param ? "Shm" : "Tcp";
                         });

}  // namespace
}  // namespace cairn

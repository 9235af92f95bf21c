// How ranks meet in a segment, and what other processes of the same user may do to it.
#include "worker/shm_collective.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "tests/worker/open_descriptors.h"
#include "tests/worker/rank_group.h"
#include "worker/shm_segment.h"

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr int64_t kMaxBytes = 4096;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

bool SegmentExists(const std::string& name) {
  const UniqueFd fd(shm_open(name.c_str(), O_RDONLY, 0));
  return fd.valid();
}

// The status with which `rank` fails to join.
absl::Status JoinError(const ShmCollectiveOptions& options) {
  absl::StatusOr<std::unique_ptr<Collective>> collective = NewShmCollective(options);
  EXPECT_FALSE(collective.ok());
  return collective.status();
}

class ShmCollectiveTest : public testing::Test {
 protected:
  ShmCollectiveTest() : group_(Options()), num_descriptors_(CountDescriptors()) {}
  ~ShmCollectiveTest() override {
    EXPECT_FALSE(SegmentExists(group_.name())) << "left in /dev/shm";
    EXPECT_EQ(CountDescriptors(), num_descriptors_);
  }

  static RankGroup::Options Options() {
    return {.backend = Backend::kShm, .size = 2, .epoch = 7, .max_message_bytes = kMaxBytes};
  }
  ShmCollectiveOptions WithTimeout(int rank, absl::Duration timeout) const {
    ShmCollectiveOptions options = group_.shm_options(rank);
    options.timeout = timeout;
    return options;
  }
  // What rank 0 leaves while it waits, but made by hand and changed by `change`.
  UniqueFd MakeSegment(const std::function<void(ShmHeader&)>& change) const {
    UniqueFd fd(shm_open(group_.name().c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    const int64_t bytes = ShmView::TotalBytes(2, kMaxBytes);
    CHECK(fd.valid() && ftruncate(fd.get(), bytes) == 0);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    CHECK_EQ(fcntl(fd.get(), F_OFD_SETLK, &lock), 0);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    CHECK(memory != MAP_FAILED);
    const ShmView view(static_cast<std::byte*>(memory), 2, kMaxBytes);
    view.Initialise(7);
    change(view.header());
    munmap(memory, bytes);
    return fd;
  }
  void Unlink() const { shm_unlink(group_.name().c_str()); }

  RankGroup group_;
  const int num_descriptors_;
};

TEST_F(ShmCollectiveTest, TheNameIsGoneOnceTheGroupHasFormed) {
  std::thread other([&] {
    absl::StatusOr<std::unique_ptr<Collective>> collective = group_.Join(1);
    ASSERT_TRUE(collective.ok()) << collective.status();
    EXPECT_TRUE((*collective)->Barrier().ok());
  });
  absl::StatusOr<std::unique_ptr<Collective>> collective = group_.Join(0);
  ASSERT_TRUE(collective.ok()) << collective.status();
  EXPECT_TRUE((*collective)->Barrier().ok());
  EXPECT_FALSE(SegmentExists(group_.name()));
  other.join();
}

TEST_F(ShmCollectiveTest, RanksMayComeInAnyOrder) {
  std::thread late([&] {
    while (!SegmentExists(group_.name())) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(group_.Join(1).ok());
  });
  EXPECT_TRUE(group_.Join(0).ok());
  late.join();
}

TEST_F(ShmCollectiveTest, TheSegmentIsPrivateToTheUser) {
  std::thread creator([&] { EXPECT_TRUE(group_.Join(0).ok()); });
  while (!SegmentExists(group_.name())) absl::SleepFor(absl::Milliseconds(1));
  {
    const UniqueFd fd(shm_open(group_.name().c_str(), O_RDONLY, 0));
    struct stat info;
    ASSERT_EQ(fstat(fd.get(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_TRUE(group_.Join(1).ok());
  creator.join();
}

TEST_F(ShmCollectiveTest, ARankThatDoesNotComeIsNamedWithinTheTimeoutAndTheNameRemoved) {
  const absl::Status status = JoinError(WithTimeout(0, absl::Milliseconds(50)));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("rank=1"));
  const absl::Status other = JoinError(WithTimeout(1, absl::Milliseconds(50)));
  EXPECT_TRUE(absl::IsUnavailable(other));
  EXPECT_THAT(Message(other), HasSubstr("rank=0"));
}

TEST_F(ShmCollectiveTest, ThoseThatCameLearnWhomTheyWaitedFor) {
  ShmCollectiveOptions options = WithTimeout(0, absl::Milliseconds(300));
  options.size = 3;
  std::thread creator([&] { EXPECT_TRUE(absl::IsUnavailable(JoinError(options))); });
  ShmCollectiveOptions joiner = options;
  joiner.rank = 1;
  joiner.timeout = absl::Seconds(30);
  const absl::Time start = absl::Now();
  const absl::Status status = JoinError(joiner);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("rank=2"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "waited for its own timeout";
  creator.join();
}

TEST_F(ShmCollectiveTest, RefusesASegmentOfAnotherGroupNamingTheField) {
  struct Field {
    const char* words;
    std::function<void(ShmHeader&)> change;
  };
  const Field fields[] = {
      {"magic", [](ShmHeader& header) { header.identity.magic = 12; }},
      {"version", [](ShmHeader& header) { header.identity.version = 9; }},
      {"epoch own=7 found=6", [](ShmHeader& header) { header.identity.epoch = 6; }},
      {"size own=2 found=3", [](ShmHeader& header) { header.identity.size = 3; }},
      {"max_message_bytes", [](ShmHeader& header) { header.identity.max_message_bytes = 1 << 30; }},
  };
  for (const Field& field : fields) {
    const UniqueFd segment = MakeSegment(field.change);
    const absl::Status status = JoinError(WithTimeout(1, absl::Seconds(5)));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr(field.words));
    Unlink();
  }
}

TEST_F(ShmCollectiveTest, RefusesASegmentThatIsShorterThanItSays) {
  const UniqueFd segment = MakeSegment([](ShmHeader&) {});
  ASSERT_EQ(ftruncate(segment.get(), 8192), 0);
  const absl::Status status = JoinError(WithTimeout(1, absl::Seconds(5)));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("bytes own="));
  Unlink();
}

TEST_F(ShmCollectiveTest, RefusesASegmentOfAnotherUser) {
  const UniqueFd segment = MakeSegment([](ShmHeader&) {});
  if (fchown(segment.get(), geteuid() + 1, -1) != 0) {
    Unlink();
    GTEST_SKIP() << "only root can give a file away";
  }
  const absl::Status status = JoinError(WithTimeout(1, absl::Seconds(5)));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("user"));
  Unlink();
}

TEST_F(ShmCollectiveTest, ASegmentWhoseCreatorDiedIsReplacedAndNotJoined) {
  {
    const UniqueFd abandoned = MakeSegment([](ShmHeader&) {});
  }
  ASSERT_TRUE(SegmentExists(group_.name()));
  std::thread early([&] { EXPECT_TRUE(group_.Join(1).ok()); });
  absl::StatusOr<std::unique_ptr<Collective>> collective = group_.Join(0);
  EXPECT_TRUE(collective.ok()) << collective.status();
  early.join();
}

TEST_F(ShmCollectiveTest, ASegmentWhoseCreatorDiedIsRemovedByWhoeverWaitedForIt) {
  {
    const UniqueFd abandoned = MakeSegment([](ShmHeader&) {});
  }
  const absl::Status status = JoinError(WithTimeout(1, absl::Milliseconds(50)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(ShmCollectiveTest, DoesNotTakeTheNameOfAGroupThatForms) {
  const UniqueFd segment = MakeSegment([](ShmHeader&) {});
  const absl::Status status = JoinError(WithTimeout(0, absl::Seconds(5)));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(SegmentExists(group_.name()));
  Unlink();
}

TEST_F(ShmCollectiveTest, ARankMayJoinOnce) {
  ShmCollectiveOptions options = WithTimeout(0, absl::Seconds(1));
  options.size = 3;
  std::thread creator([&] { EXPECT_FALSE(NewShmCollective(options).ok()); });
  const auto join = [&] {
    ShmCollectiveOptions joiner = options;
    joiner.rank = 1;
    return NewShmCollective(joiner).status();
  };
  absl::Status first;
  std::thread rank([&] { first = join(); });
  const absl::Status second = join();
  rank.join();
  creator.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(first) != absl::IsFailedPrecondition(second))
      << first << " and " << second;
}

TEST_F(ShmCollectiveTest, SaysHowMuchSharedMemoryThereIsNot) {
  struct statvfs info;
  ASSERT_EQ(statvfs("/dev/shm", &info), 0);
  ShmCollectiveOptions options = WithTimeout(0, absl::Seconds(5));
  options.size = kMaxGroupSize;
  options.max_message_bytes = kMaxMessageBytes;
  const auto wanted =
      static_cast<uint64_t>(ShmView::TotalBytes(options.size, options.max_message_bytes));
  if (info.f_blocks * info.f_frsize >= wanted) GTEST_SKIP() << "/dev/shm is very large here";
  const absl::Status status = JoinError(options);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr(absl::StrCat(wanted, " bytes")));
}

TEST_F(ShmCollectiveTest, RefusesNamesThatAreNoneNamingThem) {
  for (const char* name : {"", "/", "cairn", "/a/b"}) {
    ShmCollectiveOptions options = WithTimeout(0, absl::Seconds(5));
    options.name = name;
    EXPECT_TRUE(absl::IsInvalidArgument(JoinError(options))) << name;
  }
}

// Two ranks over memory that the test can write as a hostile process would.
class HostileSegmentTest : public testing::Test {
 protected:
  HostileSegmentTest()
      : memory_(std::aligned_alloc(4096, ShmView::TotalBytes(2, kMaxBytes)), std::free),
        view_(Zeroed(memory_.get()), 2, kMaxBytes) {
    Restart();
  }
  void Restart() {
    collective_.reset();
    view_.Initialise(1);
    collective_ = NewShmCollectiveInMemory(view_, 0, absl::Milliseconds(50));
  }
  static std::byte* Zeroed(void* memory) {
    memset(memory, 0, ShmView::TotalBytes(2, kMaxBytes));
    return static_cast<std::byte*>(memory);
  }

  const std::unique_ptr<void, decltype(&std::free)> memory_;
  const ShmView view_;
  std::unique_ptr<Collective> collective_;
};

TEST_F(HostileSegmentTest, ALengthBeyondTheLimitIsUnavailableNotRead) {
  for (const int64_t length : {int64_t{-1}, kMaxBytes + 1, INT64_MAX, INT64_MIN}) {
    Restart();
    view_.header().gather[1].length[0] = length;
    view_.header().gather[1].round = 1;
    const absl::Status status = collective_->Barrier();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("wrong length"));
  }
}

TEST_F(HostileSegmentTest, ASumOfAnotherLengthIsUnavailableNamingTheRank) {
  view_.header().reduce[1].length[0] = 5;
  view_.header().reduce[1].round = 1;
  std::vector<float> x(4, 1.0f);
  const absl::Status status = collective_->AllReduceSum(x);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  EXPECT_THAT(Message(status), HasSubstr("own=4 found=5"));
}

TEST_F(HostileSegmentTest, AReasonWithoutAnEndIsCutAndCleaned) {
  memset(view_.header().reason, '\n', kMaxReasonBytes);
  view_.header().broken = 2;
  const absl::Status status = collective_->Barrier();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(Message(status), std::string(kMaxReasonBytes, '?'));
}

TEST_F(HostileSegmentTest, AReasonThatIsNeverFinishedHoldsNobodyUp) {
  view_.header().broken = 1;
  EXPECT_TRUE(absl::IsUnavailable(collective_->Barrier()));
}

TEST_F(HostileSegmentTest, ARankThatDoesNotArriveIsNamedAfterTheTimeout) {
  collective_->SetTimeout(absl::Milliseconds(20));
  const absl::Status status = collective_->Barrier();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  EXPECT_THAT(Message(status), HasSubstr("within 20ms"));
}

// A counter passes its end after some days of steps.
TEST_F(HostileSegmentTest, CountersMayWrapAround) {
  collective_.reset();
  view_.Initialise(1);
  for (int rank = 0; rank < 2; ++rank) {
    view_.header().gather[rank].round = UINT32_MAX - 2;
    view_.header().reduce[rank].round = UINT32_MAX - 2;
  }
  const auto run = [&](int rank) {
    const std::unique_ptr<Collective> collective =
        NewShmCollectiveInMemory(view_, rank, absl::Seconds(30));
    for (uint8_t round = 0; round < 8; ++round) {
      memset(collective->Outbox(), rank * 16 + round, 10);
      ASSERT_TRUE(collective->AllGatherV(10).ok());
      ASSERT_EQ(collective->Inbox(1 - rank)[9], std::byte((1 - rank) * 16 + round));
      float x = round;
      ASSERT_TRUE(collective->AllReduceSum({&x, 1}).ok());
      ASSERT_EQ(x, 2.0f * round);
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

}  // namespace
}  // namespace cairn

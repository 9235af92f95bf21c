// The contract of Collective, on every back end, with ranks in processes of their own and as
// threads of one.
#include "worker/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/worker/rank_group.h"
#include "worker/group_limits.h"
#include "worker/shm_collective.h"
#include "worker/shm_segment.h"

namespace cairn {
namespace {

constexpr int64_t kMaxBytes = 40000;
// The sanitizers make everything slower; a walk keeps its kinds of rounds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kNumRounds = 1000;
#else
constexpr uint32_t kNumRounds = 10000;
#endif

// What every rank can compute of every other's data.
uint32_t Mix(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 2654435761u ^ (b + 0x9e3779b9u) * 2246822519u ^ (c + 77) * 3266489917u;
  x ^= x >> 15;
  x *= 2246822519u;
  return x ^ x >> 13;
}

int64_t Length(uint32_t round, int rank) {
  const uint32_t mixed = Mix(round, rank, 1);
  if (mixed % 5 == 0) return 0;
  if (mixed % 5 == 1) return kMaxBytes;
  return mixed / 5 % (mixed % 5 == 2 ? kMaxBytes + 1 : 100);
}

void Fill(uint32_t round, int rank, std::span<std::byte> out) {
  const auto start = static_cast<uint8_t>(Mix(round, rank, 2));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(start + i * 7);
}

void ExpectFilled(uint32_t round, int rank, std::span<const std::byte> found) {
  std::vector<std::byte> expected(Length(round, rank));
  Fill(round, rank, expected);
  ASSERT_EQ(found.size(), expected.size()) << "round " << round << " rank " << rank;
  ASSERT_TRUE(found.empty() || memcmp(found.data(), expected.data(), found.size()) == 0)
      << "round " << round << " rank " << rank;
}

void FillOutbox(Collective& collective, uint32_t round) {
  Fill(round, collective.rank(),
       {collective.Outbox(), static_cast<size_t>(Length(round, collective.rank()))});
}

void ExpectInboxes(const Collective& collective, uint32_t round) {
  for (int rank = 0; rank < collective.size(); ++rank) {
    ASSERT_NO_FATAL_FAILURE(ExpectFilled(round, rank, collective.Inbox(rank)));
  }
}

float Term(uint32_t round, int rank, size_t index) {
  // Of very different sizes, so that another order of additions gives other bits.
  const uint32_t mixed = Mix(round, rank, static_cast<uint32_t>(index));
  return std::ldexp(static_cast<float>(static_cast<int32_t>(mixed)),
                    static_cast<int>(mixed % 40) - 50);
}

void CheckSum(Collective& collective, uint32_t round, size_t length) {
  std::vector<float> x(length);
  for (size_t i = 0; i < length; ++i) x[i] = Term(round, collective.rank(), i);
  const absl::Status status = collective.AllReduceSum(x);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < length; ++i) {
    float expected = Term(round, 0, i);
    for (int rank = 1; rank < collective.size(); ++rank) expected += Term(round, rank, i);
    ASSERT_EQ(memcmp(&x[i], &expected, sizeof expected), 0)
        << "round " << round << " length " << length << " index " << i;
  }
}

std::string Text(uint32_t round, size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(round * 31 + i * 5 + i / 256);
  return text;
}

void CheckBroadcast(Collective& collective, int root, size_t length) {
  std::string data = collective.rank() == root ? Text(root, length) : "what was here before";
  const absl::Status status = Broadcast(collective, root, &data);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(data.size(), length) << "root " << root;
  ASSERT_TRUE(data == Text(root, length)) << "root " << root << " length " << length;
}

// Every kind of call, of random lengths, in an order that all ranks know.
void Walk(Collective& collective, uint32_t seed, uint32_t num_rounds) {
  for (uint32_t round = 0; round < num_rounds; ++round) {
    const uint32_t choice = Mix(seed, round, 3);
    switch (choice % 8) {
      case 0:
        ASSERT_TRUE(collective.Barrier().ok()) << "round " << round;
        break;
      case 1:
        ASSERT_NO_FATAL_FAILURE(CheckSum(collective, round, choice / 8 % 3000));
        break;
      case 2:
        ASSERT_NO_FATAL_FAILURE(
            CheckBroadcast(collective, choice / 8 % collective.size(), choice / 64 % 300));
        break;
      default:
        FillOutbox(collective, round);
        ASSERT_TRUE(collective.AllGatherV(Length(round, collective.rank())).ok());
        ASSERT_NO_FATAL_FAILURE(ExpectInboxes(collective, round));
    }
  }
}

// Each rank is a thread of this process with a collective of its own.
void RunThreads(RankGroup& group, const std::function<void(Collective&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&group, &body, rank] {
      absl::StatusOr<std::unique_ptr<Collective>> collective = group.Join(rank);
      ASSERT_TRUE(collective.ok()) << collective.status();
      body(**collective);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Case {
  Backend backend;
  int size;
};

class CollectiveTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().backend != Backend::kTcp6) return;
    absl::StatusOr<Listener> listener = ListenTcp("::1", 0);
    if (!listener.ok()) GTEST_SKIP() << "no IPv6 here";
    close(listener->fd);
  }
  RankGroup NewGroup() const {
    return RankGroup(RankGroup::Options{
        .backend = GetParam().backend, .size = GetParam().size, .max_message_bytes = kMaxBytes});
  }
};

TEST_P(CollectiveTest, CarriesThousandsOfRandomRoundsBetweenProcesses) {
  const uint32_t seed = std::random_device()();
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const bool is_long = GetParam().size == 2 && GetParam().backend != Backend::kTcp6;
    Walk(collective, seed, is_long ? kNumRounds : kNumRounds / 5);
  });
}

TEST_P(CollectiveTest, CarriesRandomRoundsBetweenThreads) {
  const uint32_t seed = std::random_device()();
  RankGroup group = NewGroup();
  RunThreads(group, [&](Collective& collective) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Walk(collective, seed, kNumRounds / 20);
  });
}

TEST_P(CollectiveTest, SumsAnyLengthInRankOrderToTheBit) {
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    uint32_t round = 0;
    for (const size_t length : {0, 1, 15, 17, 1023, 1025, 16383, 16384, 16385, 65535, 65536, 65537,
                                200003, 1048575, 1048579, 2100000}) {
      ASSERT_NO_FATAL_FAILURE(CheckSum(collective, ++round, length));
    }
  });
}

TEST_P(CollectiveTest, BroadcastsAnyLengthFromAnyRoot) {
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    for (int root = 0; root < collective.size(); ++root) {
      for (const int64_t length :
           {int64_t{0}, int64_t{1}, kMaxBytes - 9, kMaxBytes - 8, kMaxBytes - 7, kMaxBytes,
            2 * kMaxBytes - 8, 2 * kMaxBytes - 7, int64_t{1000003}}) {
        ASSERT_NO_FATAL_FAILURE(CheckBroadcast(collective, root, length));
      }
    }
  });
}

TEST_P(CollectiveTest, InboxesStayWhileTheNextOutboxIsFilledAndSumsAreTaken) {
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    FillOutbox(collective, 0);
    for (uint32_t round = 0; round < 20; ++round) {
      ASSERT_TRUE(collective.AllGatherV(Length(round, collective.rank())).ok());
      FillOutbox(collective, round + 1);
      ASSERT_NO_FATAL_FAILURE(CheckSum(collective, round, 20000));
      ASSERT_NO_FATAL_FAILURE(ExpectInboxes(collective, round));
    }
  });
}

TEST_P(CollectiveTest, OutboxesAreAlignedAndAlternate) {
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    EXPECT_EQ(collective.max_message_bytes(), kMaxBytes);
    const std::byte* first = collective.Outbox();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_EQ(collective.Outbox(), first);
    ASSERT_TRUE(collective.Barrier().ok());
    EXPECT_NE(collective.Outbox(), first);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(collective.Outbox()) % 64, 0u);
  });
}

TEST_P(CollectiveTest, ARankThatLeavesIsUnavailableOnTheOthers) {
  RankGroup group = NewGroup();
  RunForked(group, [&](Collective& collective) {
    ASSERT_TRUE(collective.Barrier().ok());
    if (collective.rank() == 1) return;
    const absl::Time start = absl::Now();
    const absl::Status status = collective.Barrier();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank "));
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    EXPECT_EQ(collective.Barrier(), status) << "a failed group stays failed";
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, CollectiveTest,
                         testing::Values(Case{Backend::kShm, 2}, Case{Backend::kShm, 3},
                                         Case{Backend::kShm, 4}, Case{Backend::kTcp, 2},
                                         Case{Backend::kTcp, 3}, Case{Backend::kTcp, 4},
                                         Case{Backend::kTcp6, 2}),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return BackendName(tested.param.backend) +
                                  absl::StrCat(tested.param.size);
                         });

TEST(BroadcastTest, RefusesDataBeyondTheLimitOnAllRanksAndGoesOn) {
  for (const Backend backend : {Backend::kShm, Backend::kTcp}) {
    RankGroup group(RankGroup::Options{.backend = backend, .max_message_bytes = kMaxBytes});
    RunForked(group, [&](Collective& collective) {
      std::string data;
      if (collective.rank() == 0) data.resize(kMaxBroadcastBytes + 1);
      const absl::Status status = Broadcast(collective, 0, &data);
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("bytes=268435457"));
      ASSERT_NO_FATAL_FAILURE(CheckBroadcast(collective, 1, 100));
    });
  }
}

// One mapping for all ranks, so that a thread sanitizer can follow what goes through it.
TEST(ShmCollectiveInMemoryTest, ThreadsThatShareOneMappingExchangeWithoutARace) {
  constexpr int kSize = 3;
  const int64_t bytes = ShmView::TotalBytes(kSize, kMaxBytes);
  void* memory = std::aligned_alloc(4096, bytes);
  ASSERT_NE(memory, nullptr);
  memset(memory, 0, bytes);
  const ShmView view(static_cast<std::byte*>(memory), kSize, kMaxBytes);
  view.Initialise(1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Collective> collective =
          NewShmCollectiveInMemory(view, rank, absl::Seconds(30));
      Walk(*collective, 11, kNumRounds / 5);
      CheckSum(*collective, 1, 300000);
      EXPECT_TRUE(collective->Barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::free(memory);
}

TEST(SoloCollectiveTest, AnswersEveryCallAtOnce) {
  const std::unique_ptr<Collective> solo = NewSoloCollective(kMaxBytes);
  EXPECT_EQ(solo->rank(), 0);
  EXPECT_EQ(solo->size(), 1);
  FillOutbox(*solo, 0);
  for (uint32_t round = 0; round < 20; ++round) {
    ASSERT_TRUE(solo->AllGatherV(Length(round, 0)).ok());
    FillOutbox(*solo, round + 1);
    ASSERT_NO_FATAL_FAILURE(ExpectInboxes(*solo, round));
    ASSERT_NO_FATAL_FAILURE(CheckSum(*solo, round, 1000));
    ASSERT_NO_FATAL_FAILURE(CheckBroadcast(*solo, 0, 3 * kMaxBytes));
  }
}

TEST(GroupLimitsTest, RefusesWhatNoGroupCanBeNamingFieldValueAndLimit) {
  EXPECT_TRUE(CheckGroup(0, 1, kMinMessageBytes).ok());
  EXPECT_TRUE(CheckGroup(63, 64, kMaxMessageBytes).ok());
  const auto expect_refused = [](int rank, int size, int64_t bytes, const char* words) {
    const absl::Status status = CheckGroup(rank, size, bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(words));
  };
  expect_refused(0, 0, 4096, "size=0 limit=64");
  expect_refused(0, 65, 4096, "size=65 limit=64");
  expect_refused(2, 2, 4096, "rank=2 size=2");
  expect_refused(-1, 2, 4096, "rank=-1");
  expect_refused(0, 2, 63, "value=63 least=64");
  expect_refused(0, 2, kMaxMessageBytes + 1, "value=1073741825");
}

TEST(GroupLimitsTest, AReasonFromAnotherProcessIsMadeFitForALog) {
  EXPECT_EQ(CleanReason("rank 1 has died"), "rank 1 has died");
  EXPECT_EQ(CleanReason({"a\nb\x1b[31m\0c", 9}), "a?b?[31m");
  EXPECT_EQ(CleanReason(std::string(1000, 'x')), std::string(kMaxReasonBytes, 'x'));
}

}  // namespace
}  // namespace cairn

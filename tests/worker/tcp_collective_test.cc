// How ranks meet over TCP while strangers knock, and what a peer may send.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "base/network_address.h"
#include "base/secret.h"
#include "tests/worker/open_descriptors.h"
#include "tests/worker/rank_group.h"
#include "worker/collective.h"
#include "worker/deadline.h"
#include "worker/socket.h"
#include "worker/tcp_mesh.h"

namespace cairn {
namespace {

using testing::HasSubstr;

constexpr int64_t kMaxBytes = 4096;
constexpr uint64_t kEpoch = 7;
constexpr char kKey[] = "the key of this epoch";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The hello as another program would write it.
struct ClientHello {
  char magic[8] = {'c', 'a', 'r', 'n', 'c', 'o', 'l', 'l'};
  uint32_t version = 1;
  uint32_t size = 2;
  uint64_t epoch = kEpoch;
  uint32_t from_rank = 1;
  uint32_t to_rank = 0;
  Nonce nonce = MakeNonce();
};
static_assert(sizeof(ClientHello) == 64);

struct FrameHeader {
  uint32_t kind = 1;
  uint32_t zero = 0;
  uint64_t sequence = 1;
  uint64_t bytes = 0;
};

// A blocking connection of the test's own, with a limit on how long an answer may take.
class Wire {
 public:
  explicit Wire(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << strerror(errno);
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  void Send(const void* bytes, size_t size) {
    EXPECT_EQ(send(fd_.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  // Whether `size` bytes came before the end of the stream.
  bool Receive(void* bytes, size_t size) {
    return recv(fd_.get(), bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  // Whether the other side has closed, having sent nothing (more).
  bool IsDropped() {
    char byte;
    return recv(fd_.get(), &byte, 1, 0) == 0 || errno == ECONNRESET;
  }
  // As rank 1 does it.
  void CompleteHello(uint32_t size = 2) {
    ClientHello client;
    client.size = size;
    Send(&client, sizeof client);
    char answer[64];
    ASSERT_TRUE(Receive(answer, sizeof answer));
    Hello hello = {.purpose = absl::StrCat("collective epoch 7 size ", size, " from 1 to 0"),
                   .client_nonce = client.nonce,
                   .server_nonce = {}};
    memcpy(hello.server_nonce.data(), answer, 32);
    const ClusterSecret secret(HashSha256(kKey));
    ASSERT_TRUE(secret.Verify(HelloRole::kServer, hello, {answer + 32, 32}));
    const Sha256Digest proof = secret.Prove(HelloRole::kClient, hello);
    Send(proof.data(), proof.size());
    char welcome = 0;
    ASSERT_TRUE(Receive(&welcome, 1));
    EXPECT_EQ(welcome, 1);
  }

 private:
  const UniqueFd fd_;
};

// Rank 0 and rank 1, and strangers that the test makes in between.
class TcpCollectiveTest : public testing::Test {
 protected:
  TcpCollectiveTest() : num_descriptors_(CountDescriptors()) {
    for (int rank = 0; rank < 2; ++rank) {
      absl::StatusOr<Listener> listener = ListenTcp("127.0.0.1", 0);
      CHECK(listener.ok()) << listener.status();
      listeners_[rank] = *listener;
      addresses_.push_back(absl::StrCat("127.0.0.1:", listener->port));
    }
  }
  ~TcpCollectiveTest() override {
    if (rank_0_.joinable()) rank_0_.join();
    for (const Listener& listener : listeners_) {
      if (listener.fd >= 0) close(listener.fd);
    }
    EXPECT_EQ(CountDescriptors(), num_descriptors_);
  }

  TcpCollectiveOptions Options(int rank) {
    return {.rank = rank,
            .size = 2,
            .addresses = addresses_,
            .listen_fd = std::exchange(listeners_[rank].fd, -1),
            .key = kKey,
            .epoch = kEpoch,
            .max_message_bytes = kMaxBytes,
            .timeout = absl::Seconds(60)};
  }
  // Forms rank 0 on a thread; `after` is then called with what came of it.
  void StartRank0(absl::Duration timeout,
                  std::function<void(absl::StatusOr<std::unique_ptr<Collective>>)> after) {
    TcpCollectiveOptions options = Options(0);
    options.timeout = timeout;
    rank_0_ = std::thread([options, after] { after(NewTcpCollective(options)); });
  }
  static void ExpectFormed(absl::StatusOr<std::unique_ptr<Collective>> collective) {
    ASSERT_TRUE(collective.ok()) << collective.status();
    EXPECT_TRUE((*collective)->Barrier().ok());
  }
  // Rank 1 comes and the group works.
  void ExpectRank1Joins() { ExpectFormed(NewTcpCollective(Options(1))); }
  int port() const { return listeners_[0].port; }

  const int num_descriptors_;
  Listener listeners_[2];
  std::vector<std::string> addresses_;
  std::thread rank_0_;
};

TEST_F(TcpCollectiveTest, ADocumentedHelloIsWelcome) {
  StartRank0(absl::Seconds(30), ExpectFormed);
  Wire wire(port());
  ASSERT_NO_FATAL_FAILURE(wire.CompleteHello());
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    FrameHeader header;
    ASSERT_TRUE(wire.Receive(&header, sizeof header));
    EXPECT_EQ(header.kind, 1u);
    EXPECT_EQ(header.sequence, sequence);
    EXPECT_EQ(header.bytes, 0u);
    wire.Send(&header, sizeof header);
  }
  rank_0_.join();
  EXPECT_TRUE(wire.IsDropped());
}

TEST_F(TcpCollectiveTest, StrangersAreDroppedAndTheGroupForms) {
  StartRank0(absl::Seconds(60), ExpectFormed);
  std::vector<ClientHello> wrong(7);
  wrong[0].magic[3] = 'X';
  wrong[1].version = 2;
  wrong[2].epoch = kEpoch - 1;
  wrong[3].size = 3;
  wrong[4].from_rank = 2;
  wrong[5].from_rank = 0;
  wrong[6].to_rank = 1;
  for (const ClientHello& hello : wrong) {
    Wire stranger(port());
    stranger.Send(&hello, sizeof hello);
    EXPECT_TRUE(stranger.IsDropped()) << "hello " << &hello - wrong.data();
  }
  Wire browser(port());
  const std::string request =
      "GET / HTTP/1.1\r\nHost: worker\r\nAccept: text/html, and so on...\r\n\r\n";
  browser.Send(request.data(), request.size());
  EXPECT_TRUE(browser.IsDropped());
  ExpectRank1Joins();
}

TEST_F(TcpCollectiveTest, AProofUnderAnotherKeyIsDroppedAndTheGroupForms) {
  StartRank0(absl::Seconds(60), ExpectFormed);
  Wire stranger(port());
  const ClientHello hello;
  stranger.Send(&hello, sizeof hello);
  char answer[64];
  ASSERT_TRUE(stranger.Receive(answer, sizeof answer));
  // The acceptor's own proof, sent back: the roles differ, so it proves nothing.
  stranger.Send(answer + 32, 32);
  EXPECT_TRUE(stranger.IsDropped());
  ExpectRank1Joins();
}

TEST_F(TcpCollectiveTest, SilentAndTruncatedHellosDoNotHoldTheGroupUp) {
  const ClientHello hello;
  std::vector<std::unique_ptr<Wire>> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(std::make_unique<Wire>(port()));
    if (i % 2 == 0) strangers.back()->Send(&hello, i % 64);
  }
  StartRank0(absl::Seconds(60), ExpectFormed);
  const absl::Time start = absl::Now();
  ExpectRank1Joins();
  EXPECT_LT(absl::Now() - start, absl::Seconds(4.5)) << "waited for the strangers' time limit";
}

TEST_F(TcpCollectiveTest, ARankWithAnotherKeyIsPermissionDenied) {
  StartRank0(absl::Seconds(2), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    EXPECT_TRUE(absl::IsUnavailable(collective.status())) << collective.status();
    EXPECT_THAT(Message(collective.status()), HasSubstr("rank=1"));
    EXPECT_THAT(Message(collective.status()), HasSubstr("refused=1"));
  });
  TcpCollectiveOptions options = Options(1);
  options.key = "another key";
  const absl::Status status = NewTcpCollective(options).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank=0"));
  EXPECT_THAT(Message(status), HasSubstr(addresses_[0]));
}

TEST_F(TcpCollectiveTest, ARankOfAnotherEpochStaysOutAndSaysWhy) {
  StartRank0(absl::Seconds(2), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    EXPECT_TRUE(absl::IsUnavailable(collective.status())) << collective.status();
    EXPECT_THAT(Message(collective.status()), HasSubstr("epoch: own=7 found=8"));
  });
  TcpCollectiveOptions options = Options(1);
  options.epoch = kEpoch + 1;
  options.timeout = absl::Seconds(1);
  const absl::Status status = NewTcpCollective(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("closed during the hello"));
}

TEST_F(TcpCollectiveTest, ARankThatCannotBeReachedIsNamedWithItsAddress) {
  close(std::exchange(listeners_[0].fd, -1));
  TcpCollectiveOptions options = Options(1);
  options.timeout = absl::Milliseconds(200);
  const absl::Status status = NewTcpCollective(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank=0 address=" + addresses_[0]));
  EXPECT_THAT(Message(status), HasSubstr("refused"));
}

TEST_F(TcpCollectiveTest, ARankThatDoesNotComeIsNamed) {
  StartRank0(absl::Milliseconds(200), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    EXPECT_TRUE(absl::IsUnavailable(collective.status())) << collective.status();
    EXPECT_THAT(Message(collective.status()), HasSubstr("rank=1"));
  });
}

TEST_F(TcpCollectiveTest, ARankWhoseListenerIsGoneIsNoticedLongBeforeTheTimeout) {
  close(std::exchange(listeners_[0].fd, -1));
  const absl::Time start = absl::Now();
  const absl::Status status = NewTcpCollective(Options(1)).status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "of a timeout of 60 seconds";
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank has gone while the group formed: rank=0"));
  EXPECT_THAT(Message(status), HasSubstr(addresses_[0]));
}

TEST_F(TcpCollectiveTest, AFormationThatIsGivenUpEndsAtOnce) {
  std::atomic<bool> given_up = false;
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(100));
    given_up = true;
  });
  TcpCollectiveOptions options = Options(0);
  options.is_abandoned = [&] { return given_up.load(); };
  const absl::Time start = absl::Now();
  const absl::Status status = NewTcpCollective(options).status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "of a timeout of 60 seconds";
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  other.join();
}

TEST_F(TcpCollectiveTest, AFrameThatDoesNotFitBreaksTheGroupAndIsNotRead) {
  const FrameHeader wrong[] = {
      {.bytes = uint64_t{1} << 62},
      {.bytes = kMaxBytes + 1},
      {.bytes = ~uint64_t{0}},
      {.kind = 2},
      {.kind = 99},
      {.sequence = 2},
      {.kind = 3, .bytes = 257},
  };
  for (const FrameHeader& header : wrong) {
    if (rank_0_.joinable()) rank_0_.join();
    if (listeners_[0].fd < 0) {
      absl::StatusOr<Listener> listener = ListenTcp("127.0.0.1", 0);
      ASSERT_TRUE(listener.ok()) << listener.status();
      listeners_[0] = *listener;
    }
    StartRank0(absl::Seconds(30), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
      EXPECT_TRUE(absl::IsUnavailable(collective.status())) << collective.status();
      EXPECT_THAT(Message(collective.status()), HasSubstr("rank 1 (127.0.0.1:"));
      EXPECT_THAT(Message(collective.status()), HasSubstr("wrong frame"));
    });
    Wire wire(port());
    ASSERT_NO_FATAL_FAILURE(wire.CompleteHello());
    wire.Send(&header, sizeof header);
    rank_0_.join();
  }
}

TEST_F(TcpCollectiveTest, TheFirstCauseIsPassedOnAndCleaned) {
  StartRank0(absl::Seconds(30), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    EXPECT_EQ(collective.status(), absl::UnavailableError("rank 3 has died?"));
  });
  Wire wire(port());
  ASSERT_NO_FATAL_FAILURE(wire.CompleteHello());
  const FrameHeader header = {.kind = 3, .bytes = 17};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame.append("rank 3 has died\n\0", 17);
  wire.Send(frame.data(), frame.size());
  rank_0_.join();
}

TEST_F(TcpCollectiveTest, APeerThatStallsInTheMiddleOfAFrameIsUnavailableAfterTheTimeout) {
  StartRank0(absl::Seconds(1), [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    EXPECT_TRUE(absl::IsUnavailable(collective.status())) << collective.status();
    EXPECT_THAT(Message(collective.status()), HasSubstr("rank 1"));
    EXPECT_THAT(Message(collective.status()), HasSubstr("has not answered"));
  });
  Wire wire(port());
  ASSERT_NO_FATAL_FAILURE(wire.CompleteHello());
  const FrameHeader header = {.bytes = 100};
  wire.Send(&header, sizeof header);
  wire.Send("part of it", 10);
  rank_0_.join();
}

TEST_F(TcpCollectiveTest, TwoLargeMessagesAtOnceDoNotBlockEachOther) {
  // More than the buffers of both ends of a connection take.
  constexpr int64_t kLarge = 16 << 20;
  const auto exchange = [](absl::StatusOr<std::unique_ptr<Collective>> collective) {
    ASSERT_TRUE(collective.ok()) << collective.status();
    memset((*collective)->Outbox(), 'a' + (*collective)->rank(), kLarge);
    ASSERT_TRUE((*collective)->AllGatherV(kLarge).ok());
    const std::span<const std::byte> inbox = (*collective)->Inbox(1 - (*collective)->rank());
    ASSERT_EQ(inbox.size(), static_cast<size_t>(kLarge));
    EXPECT_EQ(inbox.back(), std::byte('b' - (*collective)->rank()));
  };
  TcpCollectiveOptions options[] = {Options(0), Options(1)};
  for (TcpCollectiveOptions& each : options) each.max_message_bytes = kLarge;
  rank_0_ = std::thread([&] { exchange(NewTcpCollective(options[0])); });
  exchange(NewTcpCollective(options[1]));
  rank_0_.join();
}

TEST_F(TcpCollectiveTest, RefusesOptionsThatAreNoneNamingThem) {
  close(std::exchange(listeners_[1].fd, -1));
  const auto error = [&](const std::function<void(TcpCollectiveOptions&)>& change) {
    TcpCollectiveOptions options = Options(1);
    options.listen_fd = ListenTcp("127.0.0.1", 0)->fd;
    change(options);
    const absl::Status status = NewTcpCollective(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return Message(status);
  };
  EXPECT_THAT(error([](auto& options) { options.addresses.pop_back(); }),
              HasSubstr("addresses=1 size=2"));
  EXPECT_THAT(error([](auto& options) { options.key.clear(); }), HasSubstr("key"));
  EXPECT_THAT(error([](auto& options) { options.size = 65; }), HasSubstr("limit=64"));
  EXPECT_THAT(error([](auto& options) { options.addresses[0] = "no port"; }),
              HasSubstr("address of rank 0"));
  EXPECT_THAT(error([](auto& options) { options.addresses[0] = "a-name:4711"; }),
              HasSubstr("host=a-name"));
  EXPECT_THAT(error([](auto& options) {
                close(options.listen_fd);
                options.listen_fd = -1;
              }),
              HasSubstr("listen_fd=-1"));
}

// Rank 1 of three knows the key and comes and goes as the test wants.
class TcpFormationTest : public testing::Test {
 protected:
  TcpFormationTest()
      : group_(RankGroup::Options{
            .backend = Backend::kTcp, .size = 3, .epoch = kEpoch, .timeout = absl::Seconds(60)}) {}

  void Start(int rank) {
    ranks_[rank] = std::thread([this, rank] { Join(rank); });
  }
  void Join(int rank) {
    absl::StatusOr<std::unique_ptr<Collective>> collective = group_.Join(rank);
    results_[rank] = collective.ok() ? (*collective)->Barrier() : collective.status();
  }
  int PortOfRank0() {
    absl::StatusOr<HostPort> address = ParseHostPort(group_.addresses()[0]);
    CHECK(address.ok()) << address.status();
    return address->port;
  }

  RankGroup group_;
  std::thread ranks_[3];
  absl::Status results_[3];
};

TEST_F(TcpFormationTest, ARankThatDiesAfterItsHelloIsNoticedLongBeforeTheTimeout) {
  Start(0);
  const absl::Time start = absl::Now();
  {
    Wire victim(PortOfRank0());
    ASSERT_NO_FATAL_FAILURE(victim.CompleteHello(3));
  }
  ranks_[0].join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "of a timeout of 60 seconds";
  EXPECT_TRUE(absl::IsUnavailable(results_[0])) << results_[0];
  EXPECT_THAT(Message(results_[0]), HasSubstr("rank has gone while the group formed: rank=1"));
}

TEST_F(TcpFormationTest, ARankThatConnectsAnewIsNotGone) {
  Start(0);
  {
    Wire first(PortOfRank0());
    ASSERT_NO_FATAL_FAILURE(first.CompleteHello(3));
  }
  Start(1);
  // Rank 0 has only rank 2 to wait for, and for longer than it would wait for one that is gone.
  absl::SleepFor(absl::Seconds(3));
  Start(2);
  for (int rank = 0; rank < 3; ++rank) {
    ranks_[rank].join();
    EXPECT_TRUE(results_[rank].ok()) << "rank " << rank << ": " << results_[rank];
  }
}

TEST(TcpMeshTest, ConnectsEveryTwoRanksAndNoRankToItself) {
  constexpr int kSize = 4;
  RankGroup group(RankGroup::Options{.backend = Backend::kTcp, .size = kSize});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&group, rank] {
      TcpCollectiveOptions options = group.tcp_options(rank);
      UniqueFd listener(options.listen_fd);
      SetNonBlocking(listener.get());
      absl::StatusOr<std::vector<UniqueFd>> sockets =
          FormTcpMesh(options, std::move(listener), Deadline::After(absl::Seconds(30)));
      ASSERT_TRUE(sockets.ok()) << sockets.status();
      for (int peer = 0; peer < kSize; ++peer) {
        const int fd = (*sockets)[peer].get();
        ASSERT_EQ(fd >= 0, peer != rank) << "rank " << rank << " peer " << peer;
        const char byte = static_cast<char>(rank * kSize + peer);
        if (fd >= 0) {
          ASSERT_EQ(send(fd, &byte, 1, 0), 1);
        }
      }
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == rank) continue;
        pollfd event = {(*sockets)[peer].get(), POLLIN, 0};
        ASSERT_EQ(poll(&event, 1, 30000), 1);
        char byte = 0;
        ASSERT_EQ(recv(event.fd, &byte, 1, 0), 1);
        EXPECT_EQ(byte, peer * kSize + rank) << "the connection leads to another rank";
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(ListenTcpTest, BindsTheAddressAndTellsThePort) {
  absl::StatusOr<Listener> listener = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_GT(listener->port, 0);
  const absl::Status taken = ListenTcp("127.0.0.1", listener->port).status();
  EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
  EXPECT_THAT(Message(taken), HasSubstr(absl::StrCat("127.0.0.1:", listener->port)));
  close(listener->fd);
}

TEST(ListenTcpTest, RefusesNamesAndPortsThatAreNone) {
  EXPECT_TRUE(absl::IsInvalidArgument(ListenTcp("localhost", 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ListenTcp("127.0.0.1", 65536).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ListenTcp("127.0.0.1", -1).status()));
}

}  // namespace
}  // namespace cairn

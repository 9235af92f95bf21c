// What the ranks of a tensor-parallel group say to each other during a step.
//
// Every rank makes the same calls in the same order. A lost or stalled peer is Unavailable on all
// the others within Options::timeout; the group is then unusable and is formed anew, under another
// epoch, by whoever owns the group.
//
// Back ends: shared memory (ranks of one host: shm_collective.cc), TCP (tcp_collective.cc).
// Thread: one thread at a time, the one that runs steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

namespace cairn {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The longest contribution of one call, in bytes.
  virtual int64_t max_message_bytes() const = 0;

  // Memory for this rank's next contribution, max_message_bytes() long and 64-byte aligned. May be
  // filled while other ranks still read the contribution before it; several threads may fill parts.
  virtual std::byte* Outbox() = 0;

  // Publishes the first `bytes` of the outbox and waits for the contributions of all ranks, whose
  // lengths may differ. Afterwards Inbox(r) is rank r's (the own one too), readable by any thread
  // of this process until the next call of AllGatherV; Outbox() is a fresh buffer. Errors:
  // Unavailable if a peer is dead or has not arrived within the timeout (names the rank).
  virtual absl::Status AllGatherV(int64_t bytes) = 0;
  virtual std::span<const std::byte> Inbox(int rank) const = 0;

  // x = the sum of x over all ranks, added in rank order. For fast numerics: exact numerics add
  // the fixed tree of their leaves over AllGatherV instead. Any length.
  // Errors: as AllGatherV.
  virtual absl::Status AllReduceSum(std::span<float> x) = 0;

  // Waits until every rank has arrived. Errors: as AllGatherV.
  absl::Status Barrier() { return AllGatherV(0); }

  // How long a call waits for peers from now on (an idle follower waits longer than a step).
  virtual void SetTimeout(absl::Duration timeout) = 0;
};

// data = rank `root`'s data, of any length up to kMaxBroadcastBytes, on every rank.
// Errors: as AllGatherV; ResourceExhausted if it is longer.
inline constexpr int64_t kMaxBroadcastBytes = int64_t{256} << 20;
absl::Status Broadcast(Collective& collective, int root, std::string* data);

// A group of one: every call returns at once.
std::unique_ptr<Collective> NewSoloCollective(int64_t max_message_bytes);

struct ShmCollectiveOptions {
  // Name of the segment, unique per group and epoch: "/cairn-<group>-<epoch>". Rank 0 creates it
  // (mode 0600, exclusive); the others wait for it; it is unlinked once all have mapped it.
  std::string name;
  int rank = 0, size = 1;
  uint64_t epoch = 0;  // written in the segment and checked by each rank
  int64_t max_message_bytes = 0;
  absl::Duration timeout = absl::Seconds(10);  // of the formation and of each call
  // Asked often while the group forms: true gives it up.
  std::function<bool()> is_abandoned = {};
};
// Forms the group; returns when all ranks have mapped the segment.
// Errors: Unavailable if a rank dies or does not come within the timeout; FailedPrecondition if the
// segment is of another epoch or size; ResourceExhausted if /dev/shm is full; Cancelled if the
// group is given up.
absl::StatusOr<std::unique_ptr<Collective>> NewShmCollective(const ShmCollectiveOptions& options);

struct TcpCollectiveOptions {
  int rank = 0, size = 1;
  // "host:port" of each rank, in rank order; the own entry is not dialled.
  std::vector<std::string> addresses;
  int listen_fd = -1;  // already listening; owned by the call from then on
  std::string key;     // of this epoch, from the coordinator: authenticates each connection
  uint64_t epoch = 0;
  int64_t max_message_bytes = 0;
  absl::Duration timeout = absl::Seconds(10);  // of the formation and of each call
  // Asked often while the group forms: true gives it up.
  std::function<bool()> is_abandoned = {};
};
// Forms the group: rank r dials every lower rank; each connection opens with a fixed-size mutual
// HMAC hello under `key`. Nothing else is parsed before it, and a stranger costs its own
// connection. Errors: Unavailable naming the rank and the address that could not be reached, or
// the rank that has come and gone; PermissionDenied if a peer's hello fails; Cancelled if the group
// is given up.
absl::StatusOr<std::unique_ptr<Collective>> NewTcpCollective(TcpCollectiveOptions options);

// Opens a listening TCP socket on `host` (an address; port 0 picks one). port: the one bound.
struct Listener {
  int fd = -1;
  int port = 0;
};
absl::StatusOr<Listener> ListenTcp(const std::string& host, int port);

}  // namespace cairn

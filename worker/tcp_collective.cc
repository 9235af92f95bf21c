// Every rank has a connection to every other. An exchange sends one frame to each peer and receives
// one from each, all at once: no order of sending and receiving could block two ranks on each other
// whatever the lengths.
//
// A wait first polls in a loop, which sees an answer of the local network microseconds after it
// arrives, and then blocks.
#include <immintrin.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/unique_handle.h"
#include "worker/collective.h"
#include "worker/deadline.h"
#include "worker/group_limits.h"
#include "worker/socket.h"
#include "worker/tcp_mesh.h"

namespace cairn {
namespace {

constexpr absl::Duration kSpinTime = absl::Microseconds(50);
// Floats of a reduction that are under way at once.
constexpr size_t kReduceFloats = 1 << 20;
// Up to here all ranks add everything; beyond, each adds a part and the parts are gathered. Two
// ranks always do the former: it moves as many bytes and waits once instead of twice.
constexpr size_t kOneShotFloats = 16 << 10;

enum class FrameKind : uint32_t { kGather = 1, kReduce = 2, kFailure = 3 };

// Before the payload of each frame. Little-endian, as every machine Cairn runs on.
struct FrameHeader {
  FrameKind kind;
  uint32_t zero;
  uint64_t sequence;  // of the exchange, from 1
  uint64_t bytes;     // of the payload
};
static_assert(sizeof(FrameHeader) == 24);

// The two frames of one exchange with one peer.
struct Transfer {
  std::span<const std::byte> send;
  std::span<std::byte> receive;  // room for the payload
  bool is_exact = false;         // the payload must fill that room
};

// One connection and how far its two frames have come.
struct Peer {
  UniqueFd fd;
  std::string name;  // "rank 1 (10.0.0.7:4711)"

  Transfer transfer;
  FrameHeader send_header;
  size_t sent = 0;  // of header and payload
  FrameHeader receive_header;
  size_t received = 0;  // of header and payload
  std::array<std::byte, kMaxReasonBytes> reason;

  bool HasSent() const { return sent == sizeof send_header + transfer.send.size(); }
  bool HasReceived() const {
    return received >= sizeof receive_header &&
           received == sizeof receive_header + receive_header.bytes;
  }
};

class TcpCollective final : public Collective {
 public:
  TcpCollective(const TcpCollectiveOptions& options, std::vector<UniqueFd> sockets,
                HostBuffer gather_buffers, HostBuffer reduce_buffers);

  static int64_t GatherStride(int64_t max_message_bytes) {
    return (max_message_bytes + 63) / 64 * 64;
  }
  static int64_t ReduceBytes(int size);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  int64_t max_message_bytes() const override { return max_message_bytes_; }
  // The own buffers are the first two; each peer has one behind them.
  std::byte* Outbox() override { return GatherBuffer(turn_ % 2); }
  absl::Status AllGatherV(int64_t bytes) override;
  std::span<const std::byte> Inbox(int rank) const override { return inboxes_[rank]; }
  absl::Status AllReduceSum(std::span<float> x) override;
  void SetTimeout(absl::Duration timeout) override { timeout_ = timeout; }

 private:
  std::byte* GatherBuffer(int index) const {
    return gather_buffers_.data() + index * GatherStride(max_message_bytes_);
  }
  absl::Status Exchange(FrameKind kind, const Deadline& deadline);
  absl::StatusOr<bool> Progress(Peer* peer);
  absl::StatusOr<bool> Send(Peer* peer);
  absl::StatusOr<bool> Receive(Peer* peer);
  absl::Status CheckFrame(const Peer& peer) const;
  void Block(const Deadline& deadline);
  absl::Status Fail(const absl::Status& cause);
  absl::Status ReduceWhole(std::span<float> x, const Deadline& deadline);
  absl::Status ReduceInParts(std::span<float> x, const Deadline& deadline);

  const int rank_;
  const int64_t max_message_bytes_;
  absl::Duration timeout_;
  const HostBuffer gather_buffers_;
  const HostBuffer reduce_buffers_;
  std::vector<Peer> peers_;  // by rank; the own entry has no connection
  std::vector<std::span<const std::byte>> inboxes_;
  std::vector<pollfd> events_;
  FrameKind kind_ = FrameKind::kGather;
  uint64_t sequence_ = 0;  // of the last exchange
  uint32_t turn_ = 0;      // of the outbox
  absl::Status failure_;   // the group is unusable once this is set
};

TcpCollective::TcpCollective(const TcpCollectiveOptions& options, std::vector<UniqueFd> sockets,
                             HostBuffer gather_buffers, HostBuffer reduce_buffers)
    : rank_(options.rank),
      max_message_bytes_(options.max_message_bytes),
      timeout_(options.timeout),
      gather_buffers_(std::move(gather_buffers)),
      reduce_buffers_(std::move(reduce_buffers)),
      peers_(options.size),
      inboxes_(options.size) {
  for (int rank = 0; rank < options.size; ++rank) {
    peers_[rank].name = absl::StrCat("rank ", rank, " (", PeerAddress(sockets[rank].get()), ")");
    peers_[rank].fd = std::move(sockets[rank]);
  }
}

// Of scratch memory: what all the other ranks send at once.
int64_t TcpCollective::ReduceBytes(int size) {
  const int64_t whole = size == 2 ? kReduceFloats : kOneShotFloats;
  const int64_t part = kReduceFloats / size + 1;
  return (size - 1) * std::max(whole, part) * static_cast<int64_t>(sizeof(float));
}

absl::Status TcpCollective::AllGatherV(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= max_message_bytes_) << bytes;
  const std::span<const std::byte> own(Outbox(), bytes);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const int buffer = 2 + peer - (peer > rank_ ? 1 : 0);
    peers_[peer].transfer = {
        .send = own,
        .receive = {GatherBuffer(buffer), static_cast<size_t>(max_message_bytes_)},
    };
  }
  RETURN_IF_ERROR(Exchange(FrameKind::kGather, Deadline::After(timeout_)));
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& from = peers_[peer];
    inboxes_[peer] = from.transfer.receive.first(from.receive_header.bytes);
  }
  inboxes_[rank_] = own;
  ++turn_;
  return absl::OkStatus();
}

absl::Status TcpCollective::AllReduceSum(std::span<float> x) {
  if (!failure_.ok()) return failure_;
  if (size() == 1) return absl::OkStatus();
  const Deadline deadline = Deadline::After(timeout_);
  for (size_t begin = 0; begin < x.size(); begin += kReduceFloats) {
    const std::span<float> piece = x.subspan(begin, std::min(x.size() - begin, kReduceFloats));
    const bool whole = size() == 2 || piece.size() <= kOneShotFloats;
    RETURN_IF_ERROR(whole ? ReduceWhole(piece, deadline) : ReduceInParts(piece, deadline));
  }
  return absl::OkStatus();
}

// Everybody sends everything to everybody and adds for itself.
absl::Status TcpCollective::ReduceWhole(std::span<float> x, const Deadline& deadline) {
  std::array<const float*, kMaxGroupSize> parts;
  float* scratch = reduce_buffers_.as<float>();
  for (int peer = 0; peer < size(); ++peer) {
    parts[peer] = x.data();
    if (peer == rank_) continue;
    parts[peer] = scratch;
    peers_[peer].transfer = {
        .send = std::as_bytes(x),
        .receive = std::as_writable_bytes(std::span(scratch, x.size())),
        .is_exact = true,
    };
    scratch += x.size();
  }
  RETURN_IF_ERROR(Exchange(FrameKind::kReduce, deadline));
  SumInRankOrder({parts.data(), peers_.size()}, x.size(), x.data());
  return absl::OkStatus();
}

// Rank p receives part p of everybody, adds it, and sends the sum to everybody.
absl::Status TcpCollective::ReduceInParts(std::span<float> x, const Deadline& deadline) {
  const auto part = [&](size_t index) {
    const size_t begin = x.size() * index / peers_.size();
    return x.subspan(begin, x.size() * (index + 1) / peers_.size() - begin);
  };
  const std::span<float> own = part(rank_);
  std::array<const float*, kMaxGroupSize> parts;
  float* scratch = reduce_buffers_.as<float>();
  for (int peer = 0; peer < size(); ++peer) {
    parts[peer] = own.data();
    if (peer == rank_) continue;
    parts[peer] = scratch;
    peers_[peer].transfer = {
        .send = std::as_bytes(part(peer)),
        .receive = std::as_writable_bytes(std::span(scratch, own.size())),
        .is_exact = true,
    };
    scratch += own.size();
  }
  RETURN_IF_ERROR(Exchange(FrameKind::kReduce, deadline));
  SumInRankOrder({parts.data(), peers_.size()}, own.size(), own.data());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    peers_[peer].transfer = {
        .send = std::as_bytes(own),
        .receive = std::as_writable_bytes(part(peer)),
        .is_exact = true,
    };
  }
  return Exchange(FrameKind::kReduce, deadline);
}

// Carries out the transfers of all peers.
absl::Status TcpCollective::Exchange(FrameKind kind, const Deadline& deadline) {
  if (!failure_.ok()) return failure_;
  kind_ = kind;
  ++sequence_;
  for (Peer& peer : peers_) {
    peer.send_header = {kind, 0, sequence_, peer.transfer.send.size()};
    peer.receive_header = {};
    peer.sent = peer.received = 0;
  }
  Deadline spin_end = Deadline::After(kSpinTime);
  while (true) {
    bool is_done = true;
    bool has_moved = false;
    const Peer* late = nullptr;
    for (Peer& peer : peers_) {
      if (!peer.fd.valid() || (peer.HasSent() && peer.HasReceived())) continue;
      const absl::StatusOr<bool> moved = Progress(&peer);
      if (!moved.ok()) return Fail(moved.status());
      has_moved |= *moved;
      if (peer.HasSent() && peer.HasReceived()) continue;
      is_done = false;
      if (late == nullptr) late = &peer;
    }
    if (is_done) return absl::OkStatus();
    if (has_moved) {
      spin_end = Deadline::After(kSpinTime);
      continue;
    }
    if (deadline.Passed()) {
      return Fail(absl::UnavailableError(
          absl::StrCat(late->name, " has not answered within ", absl::FormatDuration(timeout_))));
    }
    if (spin_end.Passed()) {
      Block(deadline);
    } else {
      _mm_pause();
    }
  }
}

// Moves what can be moved without waiting; whether anything was.
absl::StatusOr<bool> TcpCollective::Progress(Peer* peer) {
  bool moved = false;
  if (!peer->HasSent()) {
    const absl::StatusOr<bool> sent = Send(peer);
    if (sent.ok()) {
      moved = *sent;
    } else {
      // The peer may have said why before it went.
      const absl::StatusOr<bool> received = peer->HasReceived() ? sent : Receive(peer);
      return received.ok() ? sent : received;
    }
  }
  if (!peer->HasReceived()) {
    ASSIGN_OR_RETURN(const bool received, Receive(peer));
    moved |= received;
  }
  return moved;
}

absl::StatusOr<bool> TcpCollective::Send(Peer* peer) {
  const size_t header_sent = std::min(peer->sent, sizeof peer->send_header);
  const size_t payload_sent = peer->sent - header_sent;
  const std::span<const std::byte> payload = peer->transfer.send.subspan(payload_sent);
  iovec pieces[2] = {
      {reinterpret_cast<char*>(&peer->send_header) + header_sent,
       sizeof peer->send_header - header_sent},
      {const_cast<std::byte*>(payload.data()), payload.size()},
  };
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t sent = sendmsg(peer->fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    peer->sent += sent;
    return true;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
  return absl::UnavailableError(
      absl::StrCat(peer->name, " has closed the connection: reason=", strerror(errno)));
}

absl::StatusOr<bool> TcpCollective::Receive(Peer* peer) {
  bool moved = false;
  while (!peer->HasReceived()) {
    FrameHeader& header = peer->receive_header;
    const bool in_header = peer->received < sizeof header;
    std::byte* target = peer->transfer.receive.data();
    if (header.kind == FrameKind::kFailure) target = peer->reason.data();
    if (in_header) target = reinterpret_cast<std::byte*>(&header);
    const size_t done = in_header ? peer->received : peer->received - sizeof header;
    const size_t wanted = in_header ? sizeof header : header.bytes;
    const ssize_t got = recv(peer->fd.get(), target + done, wanted - done, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return moved;
    if (got <= 0) {
      return absl::UnavailableError(absl::StrCat(peer->name, " has closed the connection: reason=",
                                                 got == 0 ? "end of stream" : strerror(errno)));
    }
    peer->received += got;
    moved = true;
    if (in_header && peer->received == sizeof header) RETURN_IF_ERROR(CheckFrame(*peer));
  }
  if (peer->receive_header.kind != FrameKind::kFailure) return moved;
  return absl::UnavailableError(CleanReason(
      {reinterpret_cast<const char*>(peer->reason.data()), peer->receive_header.bytes}));
}

// A frame is trusted to nothing: its payload must fit where it goes.
absl::Status TcpCollective::CheckFrame(const Peer& peer) const {
  const FrameHeader& header = peer.receive_header;
  const size_t room = peer.transfer.receive.size();
  const bool is_failure = header.kind == FrameKind::kFailure && header.bytes <= kMaxReasonBytes;
  const bool is_expected = header.kind == kind_ && header.sequence == sequence_ &&
                           header.bytes <= room &&
                           (header.bytes == room || !peer.transfer.is_exact);
  if (is_failure || is_expected) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      peer.name, " has sent a wrong frame: kind=", static_cast<uint32_t>(header.kind),
      " sequence=", header.sequence, " bytes=", header.bytes,
      " expected: kind=", static_cast<uint32_t>(kind_), " sequence=", sequence_, " limit=", room));
}

// Sleeps until a connection is ready for what it lacks, or the deadline.
void TcpCollective::Block(const Deadline& deadline) {
  events_.clear();
  for (const Peer& peer : peers_) {
    if (!peer.fd.valid()) continue;
    const int wanted = (peer.HasSent() ? 0 : POLLOUT) | (peer.HasReceived() ? 0 : POLLIN);
    if (wanted != 0) events_.push_back({peer.fd.get(), static_cast<short>(wanted), 0});
  }
  const timespec timeout = absl::ToTimespec(deadline.Remaining());
  ppoll(events_.data(), events_.size(), &timeout, nullptr);
}

// Makes the failure final and tells those peers that are not in the middle of a frame.
absl::Status TcpCollective::Fail(const absl::Status& cause) {
  failure_ = cause;
  const size_t length = std::min(cause.message().size(), kMaxReasonBytes);
  const FrameHeader header = {FrameKind::kFailure, 0, sequence_, length};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame.append(cause.message().data(), length);
  for (Peer& peer : peers_) {
    if (!peer.fd.valid()) continue;
    if (peer.sent == 0 || peer.HasSent()) {
      send(peer.fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(peer.fd.get(), SHUT_WR);
  }
  return failure_;
}

absl::Status CheckOptions(const TcpCollectiveOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options.rank, options.size, options.max_message_bytes));
  if (options.addresses.size() != static_cast<size_t>(options.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("addresses must be one for each rank: addresses=", options.addresses.size(),
                     " size=", options.size));
  }
  if (options.size > 1 && options.key.empty()) {
    return absl::InvalidArgumentError("key of the group must not be empty");
  }
  if (options.size > 1 && options.listen_fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_fd must be a descriptor: listen_fd=", options.listen_fd));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewTcpCollective(TcpCollectiveOptions options) {
  UniqueFd listener(std::exchange(options.listen_fd, -1));
  options.listen_fd = listener.get();
  RETURN_IF_ERROR(CheckOptions(options));
  const int size = options.size;
  const int64_t stride = TcpCollective::GatherStride(options.max_message_bytes);
  ASSIGN_OR_RETURN(HostBuffer gather_buffers,
                   HostBuffer::Allocate((size + 1) * stride, "collective messages"));
  ASSIGN_OR_RETURN(HostBuffer reduce_buffers,
                   HostBuffer::Allocate(TcpCollective::ReduceBytes(size), "collective reductions"));
  const Deadline deadline = Deadline::After(options.timeout);
  SetNonBlocking(listener.get());
  ASSIGN_OR_RETURN(std::vector<UniqueFd> sockets,
                   FormTcpMesh(options, std::move(listener), deadline));
  auto collective = std::make_unique<TcpCollective>(
      options, std::move(sockets), std::move(gather_buffers), std::move(reduce_buffers));
  // Nobody goes on before everybody has all connections.
  collective->SetTimeout(deadline.Remaining());
  RETURN_IF_ERROR(collective->Barrier());
  collective->SetTimeout(options.timeout);
  return std::unique_ptr<Collective>(std::move(collective));
}

}  // namespace cairn

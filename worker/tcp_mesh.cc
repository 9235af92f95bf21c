// The hello, all of fixed size:
//
//   dialler   ClientHello   who, which group, a nonce
//   acceptor  ServerHello   a nonce, proof of the key
//   dialler   proof of the key
//   acceptor  one byte: welcome
//
// Until the proof nothing a stranger sends is looked at but those 64 bytes. Strangers are dropped;
// silent ones after kHelloTimeout, or earlier when there are so many that they would keep a rank
// out.
//
// Every rank listens before any knows where, and keeps its connections until the group has formed:
// a rank that refuses a dial, or whose proven connection ends, is gone unless it is back soon.
#include "worker/tcp_mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/network_address.h"
#include "base/secret.h"
#include "worker/group_limits.h"
#include "worker/socket.h"

namespace cairn {
namespace {

constexpr uint64_t kMagic = 0x6c6c6f636e726163;  // "carncoll"
constexpr uint32_t kVersion = 1;
constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
constexpr absl::Duration kRedialInterval = absl::Milliseconds(50);
constexpr absl::Duration kPollSlice = absl::Milliseconds(20);
// How long a rank that seems to be gone may take to show that it is not.
constexpr absl::Duration kReturnTimeout = absl::Seconds(2);
// Connections that have not proven themselves. One more takes the place of the oldest, which has
// had at least the grace.
constexpr size_t kMaxHalfOpen = 64;
constexpr absl::Duration kHalfOpenGrace = absl::Milliseconds(200);
// How long accepting rests when the process has no descriptors left.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(50);
constexpr uint8_t kWelcomeByte = 1;

// Little-endian, as every machine Cairn runs on.
struct ClientHello {
  uint64_t magic;
  uint32_t version;
  uint32_t size;
  uint64_t epoch;
  uint32_t from_rank;
  uint32_t to_rank;
  Nonce nonce;
};
struct ServerHello {
  Nonce nonce;
  Sha256Digest proof;
};
static_assert(sizeof(ClientHello) == 64 && sizeof(ServerHello) == 64);

// What the next message of a connection is.
enum class Stage { kConnected, kServerHello, kWelcome, kClientHello, kClientProof };

size_t MessageBytes(Stage stage) {
  switch (stage) {
    case Stage::kConnected:
      return 0;
    case Stage::kServerHello:
      return sizeof(ServerHello);
    case Stage::kWelcome:
      return sizeof(kWelcomeByte);
    case Stage::kClientHello:
      return sizeof(ClientHello);
    case Stage::kClientProof:
      return sizeof(Sha256Digest);
  }
  return 0;
}

struct Connection {
  UniqueFd fd;
  int peer = -1;  // unknown before a ClientHello
  Stage stage = Stage::kConnected;
  std::array<char, 64> message;
  size_t received = 0;
  Hello hello;
  Deadline grace = Deadline::After(kHalfOpenGrace);
  Deadline deadline = Deadline::After(kHelloTimeout);
};

struct Dial {
  Deadline next = Deadline::After(absl::ZeroDuration());
  std::string last_error = "no answer";
};

// Why a rank seems to be gone, and how long it is waited for.
struct Absence {
  std::string reason;
  Deadline limit = Deadline::After(kReturnTimeout);
};

// A hello fits into the buffer of a fresh socket; if not, the connection is not worth keeping.
absl::Status SendWhole(int fd, const void* bytes, size_t size) {
  const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(size)) return absl::OkStatus();
  return absl::UnavailableError(sent < 0 ? strerror(errno) : "the hello was cut short");
}

class MeshFormation {
 public:
  MeshFormation(const TcpCollectiveOptions& options, UniqueFd listener, const Deadline& deadline)
      : options_(options),
        listener_(std::move(listener)),
        deadline_(deadline),
        secret_(HashSha256(options.key)),
        dials_(options.rank),
        sockets_(options.size),
        absences_(options.size) {}

  absl::StatusOr<std::vector<UniqueFd>> Run();

 private:
  bool IsComplete() const;
  absl::Status StartDials();
  bool IsDialling(int peer) const;
  void Accept();
  bool HasRoom() const;
  void DropOldestStranger();
  void Poll();
  absl::Status Progress(Connection* connection, bool* done);
  absl::Status Receive(Connection* connection, bool* complete);
  absl::Status SendClientHello(Connection* connection);
  absl::Status OnServerHello(Connection* connection);
  absl::Status OnClientHello(Connection* connection);
  absl::Status OnClientProof(Connection* connection);
  absl::Status CheckClientHello(const ClientHello& hello) const;
  std::string Purpose(uint32_t from_rank, uint32_t to_rank) const;
  absl::Status ProgressAll();
  absl::Status OnFailed(const Connection& connection, const absl::Status& status);
  void MarkAbsent(int peer, const std::string& reason);
  absl::Status CheckPeers();
  absl::Status Timeout() const;

  const TcpCollectiveOptions& options_;
  const UniqueFd listener_;
  const Deadline deadline_;
  Deadline accept_pause_ = Deadline::After(absl::ZeroDuration());
  const ClusterSecret secret_;
  std::vector<HostPort> addresses_;               // of the ranks below
  std::vector<Dial> dials_;                       // of the ranks below
  std::vector<UniqueFd> sockets_;                 // by rank; proven
  std::vector<std::optional<Absence>> absences_;  // by rank
  std::list<Connection> half_open_;               // oldest first
  int64_t num_refused_ = 0;
  std::string last_refusal_ = "none";
};

absl::StatusOr<std::vector<UniqueFd>> MeshFormation::Run() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    absl::StatusOr<HostPort> address = ParseHostPort(options_.addresses[peer]);
    if (!address.ok()) {
      return Annotate(address.status(), absl::StrCat("address of rank ", peer));
    }
    addresses_.push_back(*std::move(address));
  }
  while (true) {
    RETURN_IF_ERROR(StartDials());
    RETURN_IF_ERROR(ProgressAll());
    if (IsComplete()) return std::move(sockets_);
    RETURN_IF_ERROR(CheckPeers());
    if (deadline_.Passed()) return Timeout();
    Poll();
    Accept();
  }
}

bool MeshFormation::IsComplete() const {
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer != options_.rank && !sockets_[peer].valid()) return false;
  }
  return true;
}

bool MeshFormation::IsDialling(int peer) const {
  return std::any_of(half_open_.begin(), half_open_.end(),
                     [peer](const Connection& connection) { return connection.peer == peer; });
}

absl::Status MeshFormation::StartDials() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    Dial& dial = dials_[peer];
    if (sockets_[peer].valid() || IsDialling(peer) || !dial.next.Passed()) continue;
    dial.next = Deadline::After(kRedialInterval);
    absl::StatusOr<UniqueFd> fd = StartConnect(addresses_[peer]);
    if (absl::IsInvalidArgument(fd.status())) {
      return Annotate(fd.status(), absl::StrCat("address of rank ", peer));
    }
    if (!fd.ok()) {
      dial.last_error = std::string(fd.status().message());
      continue;
    }
    Connection& connection = half_open_.emplace_back();
    connection.fd = *std::move(fd);
    connection.peer = peer;
  }
  return absl::OkStatus();
}

// Waits until something may have changed.
void MeshFormation::Poll() {
  const bool accepts = HasRoom() && accept_pause_.Passed();
  std::vector<pollfd> events = {{accepts ? listener_.get() : -1, POLLIN, 0}};
  for (const UniqueFd& socket : sockets_) events.push_back({socket.get(), POLLRDHUP, 0});
  for (const Connection& connection : half_open_) {
    const short wanted = connection.stage == Stage::kConnected ? POLLOUT : POLLIN;
    events.push_back({connection.fd.get(), wanted, 0});
  }
  const absl::Duration wait = std::min(kPollSlice, deadline_.Remaining());
  poll(events.data(), events.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1);
}

bool MeshFormation::HasRoom() const { return half_open_.size() < kMaxHalfOpen + dials_.size(); }

void MeshFormation::Accept() {
  if (!accept_pause_.Passed()) return;
  while (true) {
    if (!HasRoom()) DropOldestStranger();
    if (!HasRoom()) return;
    UniqueFd fd = AcceptConnection(listener_.get());
    if (!fd.valid()) {
      const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      if (is_short) accept_pause_ = Deadline::After(kAcceptPause);
      return;
    }
    Connection& connection = half_open_.emplace_back();
    connection.fd = std::move(fd);
    connection.stage = Stage::kClientHello;
  }
}

// Unless it has just come.
void MeshFormation::DropOldestStranger() {
  const auto oldest =
      std::find_if(half_open_.begin(), half_open_.end(), [](const Connection& connection) {
        return connection.stage == Stage::kClientHello || connection.stage == Stage::kClientProof;
      });
  if (oldest == half_open_.end() || !oldest->grace.Passed()) return;
  OnFailed(*oldest, absl::ResourceExhaustedError("too many connections without a hello"))
      .IgnoreError();
  half_open_.erase(oldest);
}

absl::Status MeshFormation::ProgressAll() {
  for (auto it = half_open_.begin(); it != half_open_.end();) {
    bool done = false;
    absl::Status status = Progress(&*it, &done);
    if (status.ok() && !done && it->deadline.Passed()) {
      status = absl::UnavailableError("the hello was not finished in time");
    }
    if (status.ok() && !done) {
      ++it;
      continue;
    }
    if (done) {
      sockets_[it->peer] = std::move(it->fd);
      absences_[it->peer].reset();
    }
    if (!status.ok()) RETURN_IF_ERROR(OnFailed(*it, status));
    it = half_open_.erase(it);
  }
  return absl::OkStatus();
}

// A dial that fails is tried again, unless the key is wrong; a stranger is forgotten.
absl::Status MeshFormation::OnFailed(const Connection& connection, const absl::Status& status) {
  const std::string reason(status.message());
  const bool is_dial =
      connection.stage != Stage::kClientHello && connection.stage != Stage::kClientProof;
  if (!is_dial) {
    ++num_refused_;
    last_refusal_ = absl::StrCat(reason, " (", PeerAddress(connection.fd.get()), ")");
    return absl::OkStatus();
  }
  dials_[connection.peer].last_error = reason;
  if (!absl::IsPermissionDenied(status)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(reason, ": rank=", connection.peer,
                                                  " address=", options_.addresses[connection.peer],
                                                  " epoch=", options_.epoch));
}

// Takes a connection as far as it goes without waiting; *done once it is proven.
absl::Status MeshFormation::Progress(Connection* connection, bool* done) {
  while (!*done) {
    if (connection->stage == Stage::kConnected) {
      pollfd event = {connection->fd.get(), POLLOUT, 0};
      if (poll(&event, 1, 0) <= 0) return absl::OkStatus();
      RETURN_IF_ERROR(SendClientHello(connection));
    }
    bool complete = false;
    RETURN_IF_ERROR(Receive(connection, &complete));
    if (!complete) return absl::OkStatus();
    connection->received = 0;
    switch (connection->stage) {
      case Stage::kConnected:
        break;
      case Stage::kServerHello:
        RETURN_IF_ERROR(OnServerHello(connection));
        break;
      case Stage::kClientHello:
        RETURN_IF_ERROR(OnClientHello(connection));
        break;
      case Stage::kClientProof:
        RETURN_IF_ERROR(OnClientProof(connection));
        *done = true;
        break;
      case Stage::kWelcome:
        if (connection->message[0] != kWelcomeByte) return absl::UnavailableError("no welcome");
        *done = true;
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status MeshFormation::Receive(Connection* connection, bool* complete) {
  const size_t wanted = MessageBytes(connection->stage);
  while (connection->received < wanted) {
    const ssize_t got =
        recv(connection->fd.get(), connection->message.data() + connection->received,
             wanted - connection->received, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (got < 0) return absl::UnavailableError(strerror(errno));
    if (got == 0) return absl::UnavailableError("connection closed during the hello");
    connection->received += got;
  }
  *complete = true;
  return absl::OkStatus();
}

// Both ends of the connection and the group are part of what is proven.
std::string MeshFormation::Purpose(uint32_t from_rank, uint32_t to_rank) const {
  return absl::StrCat("collective epoch ", options_.epoch, " size ", options_.size, " from ",
                      from_rank, " to ", to_rank);
}

absl::Status MeshFormation::SendClientHello(Connection* connection) {
  if (const int error = ConnectError(connection->fd.get()); error != 0) {
    if (error == ECONNREFUSED) MarkAbsent(connection->peer, strerror(error));
    return absl::UnavailableError(strerror(error));
  }
  absences_[connection->peer].reset();
  connection->hello.purpose = Purpose(options_.rank, connection->peer);
  connection->hello.client_nonce = MakeNonce();
  const ClientHello hello = {
      .magic = kMagic,
      .version = kVersion,
      .size = static_cast<uint32_t>(options_.size),
      .epoch = options_.epoch,
      .from_rank = static_cast<uint32_t>(options_.rank),
      .to_rank = static_cast<uint32_t>(connection->peer),
      .nonce = connection->hello.client_nonce,
  };
  connection->stage = Stage::kServerHello;
  return SendWhole(connection->fd.get(), &hello, sizeof hello);
}

absl::Status MeshFormation::OnServerHello(Connection* connection) {
  ServerHello answer;
  memcpy(&answer, connection->message.data(), sizeof answer);
  connection->hello.server_nonce = answer.nonce;
  if (!secret_.Verify(HelloRole::kServer, connection->hello, AsBytes(answer.proof))) {
    return absl::PermissionDeniedError("peer does not know the key of the group");
  }
  const Sha256Digest proof = secret_.Prove(HelloRole::kClient, connection->hello);
  connection->stage = Stage::kWelcome;
  return SendWhole(connection->fd.get(), proof.data(), proof.size());
}

absl::Status MeshFormation::CheckClientHello(const ClientHello& hello) const {
  if (hello.magic != kMagic) return absl::InvalidArgumentError("not a rank's hello");
  if (hello.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("version: own=", kVersion, " found=", hello.version));
  }
  if (hello.epoch != options_.epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch: own=", options_.epoch, " found=", hello.epoch));
  }
  if (hello.size != static_cast<uint32_t>(options_.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("size: own=", options_.size, " found=", hello.size));
  }
  const auto own = static_cast<uint32_t>(options_.rank);
  if (hello.to_rank != own || hello.from_rank <= own || hello.from_rank >= hello.size) {
    return absl::InvalidArgumentError(absl::StrCat("ranks: own=", own, " from=", hello.from_rank,
                                                   " to=", hello.to_rank, " size=", hello.size));
  }
  return absl::OkStatus();
}

absl::Status MeshFormation::OnClientHello(Connection* connection) {
  ClientHello hello;
  memcpy(&hello, connection->message.data(), sizeof hello);
  RETURN_IF_ERROR(CheckClientHello(hello));
  connection->peer = static_cast<int>(hello.from_rank);
  connection->hello.purpose = Purpose(hello.from_rank, hello.to_rank);
  connection->hello.client_nonce = hello.nonce;
  connection->hello.server_nonce = MakeNonce();
  const ServerHello answer = {
      .nonce = connection->hello.server_nonce,
      .proof = secret_.Prove(HelloRole::kServer, connection->hello),
  };
  connection->stage = Stage::kClientProof;
  return SendWhole(connection->fd.get(), &answer, sizeof answer);
}

absl::Status MeshFormation::OnClientProof(Connection* connection) {
  const std::string_view proof(connection->message.data(), sizeof(Sha256Digest));
  if (!secret_.Verify(HelloRole::kClient, connection->hello, proof)) {
    return absl::PermissionDeniedError("peer does not know the key of the group");
  }
  return SendWhole(connection->fd.get(), &kWelcomeByte, sizeof kWelcomeByte);
}

void MeshFormation::MarkAbsent(int peer, const std::string& reason) {
  if (!absences_[peer].has_value()) absences_[peer] = Absence{.reason = reason};
}

// Fails if a rank is gone, or if nobody wants the group any more.
absl::Status MeshFormation::CheckPeers() {
  if (options_.is_abandoned && options_.is_abandoned()) {
    return absl::CancelledError("the formation of the group was given up");
  }
  for (int peer = 0; peer < options_.size; ++peer) {
    pollfd event = {sockets_[peer].get(), POLLRDHUP, 0};
    if (event.fd >= 0 && poll(&event, 1, 0) > 0) {
      MarkAbsent(peer, "its connection has ended");
      sockets_[peer].Reset();
    }
    if (!absences_[peer].has_value() || !absences_[peer]->limit.Passed()) continue;
    return absl::UnavailableError(absl::StrCat("rank has gone while the group formed: rank=", peer,
                                               " address=", options_.addresses[peer],
                                               " reason=", absences_[peer]->reason));
  }
  return absl::OkStatus();
}

absl::Status MeshFormation::Timeout() const {
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank || sockets_[peer].valid()) continue;
    const std::string seconds = absl::FormatDuration(options_.timeout);
    if (peer < options_.rank) {
      return absl::UnavailableError(
          absl::StrCat("rank cannot be reached: rank=", peer, " address=", options_.addresses[peer],
                       " timeout=", seconds, " reason=", dials_[peer].last_error));
    }
    return absl::UnavailableError(absl::StrCat("rank has not come to form the group: rank=", peer,
                                               " timeout=", seconds, " refused=", num_refused_,
                                               " last_refusal=", last_refusal_));
  }
  return absl::InternalError("the mesh is complete");
}

}  // namespace

absl::StatusOr<std::vector<UniqueFd>> FormTcpMesh(const TcpCollectiveOptions& options,
                                                  UniqueFd listener, const Deadline& deadline) {
  return MeshFormation(options, std::move(listener), deadline).Run();
}

}  // namespace cairn

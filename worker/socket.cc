#include "worker/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/collective.h"

namespace cairn {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

absl::StatusOr<SocketAddress> ParseNumeric(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("port out of range: port=", port, " limit=65535"));
  }
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = absl::StrCat(port);
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0 || found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("host must be an IPv4 or IPv6 address: host=", host));
  }
  SocketAddress address;
  memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

absl::StatusOr<UniqueFd> NewSocket(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid()) return fd;
  return absl::UnavailableError(absl::StrCat("cannot make a socket: reason=", strerror(errno)));
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<UniqueFd> StartConnect(const HostPort& address) {
  ASSIGN_OR_RETURN(const SocketAddress target, ParseNumeric(address.host, address.port));
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(target));
  DisableDelay(fd.get());
  if (connect(fd.get(), target.get(), target.bytes) == 0 || errno == EINPROGRESS) return fd;
  return absl::UnavailableError(
      absl::StrCat("cannot connect: address=", address.ToString(), " reason=", strerror(errno)));
}

int ConnectError(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

UniqueFd AcceptConnection(int listen_fd) {
  UniqueFd fd(accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) DisableDelay(fd.get());
  return fd;
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

void DisableDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string PeerAddress(int fd) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  char host[NI_MAXHOST];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  return HostPort{host, PortOf(address)}.ToString();
}

absl::StatusOr<Listener> ListenTcp(const std::string& host, int port) {
  ASSIGN_OR_RETURN(const SocketAddress address, ParseNumeric(host, port));
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(address));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof bound;
  // The longest queue there is: strangers must not crowd out the ranks.
  if (bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen: address=", HostPort{host, port}.ToString(), " reason=", strerror(errno)));
  }
  const int bound_port = PortOf(bound);
  return Listener{fd.Release(), bound_port};
}

}  // namespace cairn

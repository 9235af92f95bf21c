// TCP sockets between ranks: non-blocking, numeric addresses only.
//
// ListenTcp is declared in collective.h.
// Thread: any.
#pragma once

#include <string>

#include "base/network_address.h"
#include "base/status.h"
#include "base/unique_handle.h"

namespace cairn {

// Starts to connect; the socket is writable once it is known whether that worked (ConnectError).
// Errors: InvalidArgument if the host is not a numeric address: a name would be looked up, and
// looking up takes as long as it likes; Unavailable if the system refuses at once.
absl::StatusOr<UniqueFd> StartConnect(const HostPort& address);

// The errno that connecting ended with; 0 if it worked.
int ConnectError(int fd);

// The next connection of a listening socket, non-blocking and without delays for small messages;
// not valid if there is none (errno says why).
UniqueFd AcceptConnection(int listen_fd);

void SetNonBlocking(int fd);
void DisableDelay(int fd);

// "10.0.0.7:4711", or "unknown".
std::string PeerAddress(int fd);

}  // namespace cairn

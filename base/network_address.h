// Which address of this host another host is told to connect to.
//
// A host name is never looked up for this: it often resolves to loopback, or to the wrong card.
// The address is given, or chosen by card or subnet, or it is the one from which the route to a
// known peer leaves.
//
// Thread: any.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cairn {

struct HostPort {
  std::string host;  // a name, an IPv4 address or an IPv6 address without brackets
  int port = 0;      // 1..65535
  // "host:port", with brackets around IPv6.
  std::string ToString() const;
};

// Errors: InvalidArgument unless `text` is host:port or [IPv6]:port. A host of digits and dots only
// must be a whole IPv4 address: "12345" is no name. least_port: 0 for whoever listens, where it
// means any free one.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int least_port = 1);

// Whether `address` is a numeric address of the loopback net.
bool IsLoopback(std::string_view address);

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, IPv4 or IPv6
};

// The addresses of the cards that are up, in the kernel's order. Errors: Internal.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaceAddresses();

// The local address from which packets to `host` leave; nothing is sent.
// Errors: InvalidArgument for a host that does not resolve; Unavailable if there is no route.
absl::StatusOr<std::string> RouteSource(const std::string& host);

// What ChooseAdvertisedAddress looks at; tests put in their own.
struct NetworkView {
  std::vector<InterfaceAddress> interfaces;
  std::function<absl::StatusOr<std::string>(const std::string& host)> route_source;
};
// This host as it is. Errors: Internal.
absl::StatusOr<NetworkView> ReadNetwork();

// Chooses by `choice`:
//   ""                     the address the route to `peer_host` leaves from
//   "10.0.0.7"             this address, which must be one of ours
//   "interface:eth1"       the first address of that card, IPv4 before IPv6
//   "subnet:10.0.0.0/16"   the first of our addresses in it
// `peer_host` is whom we must be reachable for (the coordinator). A loopback address is refused
// when that peer is not on this host.
// Errors: InvalidArgument naming the choice and what there is; Unavailable if no route exists.
absl::StatusOr<std::string> ChooseAdvertisedAddress(std::string_view choice,
                                                    const std::string& peer_host,
                                                    const NetworkView& network);

// Equal for two processes exactly when loopback connects them: same boot, same network namespace.
// Errors: Internal if the kernel does not say.
absl::StatusOr<std::string> LoopbackDomain();

struct AdvertisedAddress {
  std::string rank;             // "group 0 rank 1", for the message
  std::string address;          // host part only
  std::string loopback_domain;  // LoopbackDomain() of that process
};

// Errors: InvalidArgument naming both ranks if one advertises loopback and the other is elsewhere.
absl::Status CheckMutuallyReachable(std::span<const AdvertisedAddress> addresses);

}  // namespace cairn

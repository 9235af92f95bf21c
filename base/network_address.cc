#include "base/network_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/unique_handle.h"

namespace cairn {
namespace {

void FreeAddressInfo(addrinfo* info) { freeaddrinfo(info); }
void FreeInterfaces(ifaddrs* interfaces) { freeifaddrs(interfaces); }

// A numeric address as bytes: 4 of IPv4 or 16 of IPv6.
struct NumericAddress {
  int family = AF_UNSPEC;
  unsigned char bytes[16] = {};
  int num_bits() const { return family == AF_INET ? 32 : 128; }
};

std::optional<NumericAddress> ParseNumeric(std::string_view text) {
  const std::string terminated(text);
  for (const int family : {AF_INET, AF_INET6}) {
    NumericAddress address{.family = family};
    if (inet_pton(family, terminated.c_str(), address.bytes) == 1) return address;
  }
  return std::nullopt;
}

bool SamePrefix(const NumericAddress& a, const NumericAddress& b, int prefix_bits) {
  if (a.family != b.family) return false;
  for (int bit = 0; bit < prefix_bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((a.bytes[bit / 8] & mask) != (b.bytes[bit / 8] & mask)) return false;
  }
  return true;
}

std::string ToText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  }
  return text;
}

// The family-link addresses of IPv6 need a card's name beside them to be of use.
bool IsLinkLocal(const NumericAddress& address) {
  return address.family == AF_INET6 && address.bytes[0] == 0xfe &&
         (address.bytes[1] & 0xc0) == 0x80;
}

std::string Describe(const NetworkView& network) {
  return absl::StrJoin(network.interfaces, " ", [](std::string* out, const InterfaceAddress& item) {
    absl::StrAppend(out, item.interface, "=", item.address);
  });
}

absl::Status NoSuchAddress(std::string_view choice, const NetworkView& network) {
  return absl::InvalidArgumentError(
      absl::StrCat("no address of this host matches: choice=", std::string(choice),
                   " available: ", Describe(network)));
}

bool IsOurs(std::string_view address, const NetworkView& network) {
  for (const InterfaceAddress& item : network.interfaces) {
    if (item.address == address) return true;
  }
  return IsLoopback(address);
}

absl::StatusOr<std::string> ChooseByInterface(std::string_view name, std::string_view choice,
                                              const NetworkView& network) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const InterfaceAddress& item : network.interfaces) {
      const std::optional<NumericAddress> address = ParseNumeric(item.address);
      if (item.interface == name && address && address->family == family &&
          !IsLinkLocal(*address)) {
        return item.address;
      }
    }
  }
  return NoSuchAddress(choice, network);
}

absl::StatusOr<std::string> ChooseBySubnet(std::string_view subnet, std::string_view choice,
                                           const NetworkView& network) {
  const size_t slash = subnet.find('/');
  const std::optional<NumericAddress> base = ParseNumeric(subnet.substr(0, slash));
  int prefix_bits = -1;
  if (slash != std::string_view::npos &&
      !absl::SimpleAtoi(std::string(subnet.substr(slash + 1)), &prefix_bits)) {
    prefix_bits = -1;
  }
  if (!base || prefix_bits < 0 || prefix_bits > base->num_bits()) {
    return absl::InvalidArgumentError(
        absl::StrCat("subnet is not of the form address/bits: choice=", std::string(choice)));
  }
  for (const InterfaceAddress& item : network.interfaces) {
    const std::optional<NumericAddress> address = ParseNumeric(item.address);
    if (address && SamePrefix(*address, *base, prefix_bits)) return item.address;
  }
  return NoSuchAddress(choice, network);
}

absl::StatusOr<std::string> ChooseUnchecked(std::string_view choice, const std::string& peer_host,
                                            const NetworkView& network) {
  constexpr std::string_view kInterface = "interface:", kSubnet = "subnet:";
  if (choice.empty()) return network.route_source(peer_host);
  if (choice.substr(0, kInterface.size()) == kInterface) {
    return ChooseByInterface(choice.substr(kInterface.size()), choice, network);
  }
  if (choice.substr(0, kSubnet.size()) == kSubnet) {
    return ChooseBySubnet(choice.substr(kSubnet.size()), choice, network);
  }
  if (!ParseNumeric(choice) || !IsOurs(choice, network)) return NoSuchAddress(choice, network);
  return std::string(choice);
}

absl::StatusOr<UniqueHandle<addrinfo*, FreeAddressInfo>> Resolve(const std::string& host) {
  const addrinfo hints{.ai_flags = 0,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_DGRAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  // Any port will do: nothing is sent to it.
  const int error = getaddrinfo(host.c_str(), "9", &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host does not resolve: host=", host, " reason=", gai_strerror(error)));
  }
  return UniqueHandle<addrinfo*, FreeAddressInfo>(found);
}

bool IsDigitsAndDots(std::string_view text) {
  return text.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string HostPort::ToString() const {
  const bool brackets = host.find(':') != std::string::npos;
  return absl::StrCat(brackets ? "[" : "", host, brackets ? "]" : "", ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int least_port) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("address must be host:port, ", std::string(why), ": ", std::string(text)));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("the port is missing");
  std::string_view host = text.substr(0, colon);
  HostPort result;
  if (!absl::SimpleAtoi(std::string(text.substr(colon + 1)), &result.port) ||
      result.port < least_port || result.port > 65535) {
    return refuse(absl::StrCat("the port must be ", least_port, "..65535"));
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    const std::optional<NumericAddress> address = ParseNumeric(host);
    if (!address || address->family != AF_INET6) return refuse("brackets hold an IPv6 address");
  } else if (host.empty() || host.find_first_of(":[] /") != std::string_view::npos) {
    return refuse("the host is not a name or an address");
  } else if (IsDigitsAndDots(host) && !ParseNumeric(host)) {
    return refuse("the host is neither a name nor a whole IPv4 address");
  }
  result.host = std::string(host);
  return result;
}

bool IsLoopback(std::string_view address) {
  const std::optional<NumericAddress> numeric = ParseNumeric(address);
  if (!numeric) return false;
  if (numeric->family == AF_INET) return numeric->bytes[0] == 127;
  if (SamePrefix(*numeric, *ParseNumeric("::ffff:0:0"), 96)) return numeric->bytes[12] == 127;
  return SamePrefix(*numeric, *ParseNumeric("::1"), 128);
}

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaceAddresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return absl::InternalError(absl::StrCat("cannot list interfaces: ", strerror(errno)));
  }
  const UniqueHandle<ifaddrs*, FreeInterfaces> owner(first);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* item = first; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & IFF_UP) == 0) continue;
    std::string text = ToText(item->ifa_addr);
    if (!text.empty()) result.push_back({item->ifa_name, std::move(text)});
  }
  return result;
}

absl::StatusOr<std::string> RouteSource(const std::string& host) {
  ASSIGN_OR_RETURN(const auto found, Resolve(host));
  int error = 0;
  for (const addrinfo* item = found.get(); item != nullptr; item = item->ai_next) {
    // Connecting a datagram socket only asks the kernel for the route.
    const UniqueFd fd(socket(item->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    if (fd.valid() && connect(fd.get(), item->ai_addr, item->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0) {
      return ToText(reinterpret_cast<const sockaddr*>(&local));
    }
    error = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("no route to host: host=", host, " reason=", strerror(error)));
}

absl::StatusOr<NetworkView> ReadNetwork() {
  ASSIGN_OR_RETURN(std::vector<InterfaceAddress> interfaces, ListInterfaceAddresses());
  return NetworkView{.interfaces = std::move(interfaces), .route_source = RouteSource};
}

absl::StatusOr<std::string> ChooseAdvertisedAddress(std::string_view choice,
                                                    const std::string& peer_host,
                                                    const NetworkView& network) {
  ASSIGN_OR_RETURN(std::string address, ChooseUnchecked(choice, peer_host, network));
  if (!IsLoopback(address)) return address;
  // A peer reached from a loopback address, or under one of our own, is on this host.
  ASSIGN_OR_RETURN(const std::string source, network.route_source(peer_host));
  if (IsLoopback(source) || peer_host == source) return address;
  return absl::InvalidArgumentError(
      absl::StrCat("loopback cannot be advertised to a peer on another host: address=", address,
                   " peer=", peer_host, " available: ", Describe(network)));
}

absl::StatusOr<std::string> LoopbackDomain() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char name_space[64] = "";
  const ssize_t size = readlink("/proc/self/ns/net", name_space, sizeof name_space - 1);
  if (!std::getline(file, boot) || size <= 0) {
    return absl::InternalError("cannot read /proc: boot id or network namespace");
  }
  return absl::StrCat(boot, " ", std::string(name_space, size));
}

absl::Status CheckMutuallyReachable(std::span<const AdvertisedAddress> addresses) {
  for (const AdvertisedAddress& a : addresses) {
    if (!IsLoopback(a.address)) continue;
    for (const AdvertisedAddress& b : addresses) {
      if (a.loopback_domain == b.loopback_domain) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("loopback advertised to another host: ", a.rank, " advertises ", a.address,
                       ", ", b.rank, " at ", b.address, " cannot reach it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn

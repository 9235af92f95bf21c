#include "base/network_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Two cards and loopback; the way to 10.1.* leaves by eth0, to 192.168.* by eth1.
NetworkView Host() {
  return {.interfaces = {{"lo", "127.0.0.1"},
                         {"lo", "::1"},
                         {"eth0", "fe80::1"},
                         {"eth0", "fd00::5"},
                         {"eth0", "10.1.0.5"},
                         {"eth1", "192.168.7.9"}},
          .route_source = [](const std::string& host) -> absl::StatusOr<std::string> {
            if (host.substr(0, 5) == "10.1.") return std::string("10.1.0.5");
            if (host.substr(0, 8) == "192.168.") return std::string("192.168.7.9");
            if (host == "127.0.0.1" || host == "localhost") return std::string("127.0.0.1");
            return absl::UnavailableError("no route to host: host=" + host);
          }};
}

TEST(ChooseAdvertisedAddressTest, FollowsTheRouteToThePeerByDefault) {
  EXPECT_EQ(*ChooseAdvertisedAddress("", "10.1.0.1", Host()), "10.1.0.5");
  EXPECT_EQ(*ChooseAdvertisedAddress("", "192.168.7.1", Host()), "192.168.7.9");
  EXPECT_EQ(*ChooseAdvertisedAddress("", "localhost", Host()), "127.0.0.1");
}

TEST(ChooseAdvertisedAddressTest, SaysWhichPeerHasNoRoute) {
  const absl::Status status = ChooseAdvertisedAddress("", "8.8.8.8", Host()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("8.8.8.8"));
}

TEST(ChooseAdvertisedAddressTest, TakesAnAddressOnlyIfItIsOurs) {
  EXPECT_EQ(*ChooseAdvertisedAddress("192.168.7.9", "10.1.0.1", Host()), "192.168.7.9");
  for (const char* choice : {"10.1.0.6", "eth0", "12345", "0.0.0.0"}) {
    const absl::Status status = ChooseAdvertisedAddress(choice, "10.1.0.1", Host()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << choice;
    EXPECT_THAT(Message(status), HasSubstr(choice));
    EXPECT_THAT(Message(status), HasSubstr("eth1=192.168.7.9"));
  }
}

TEST(ChooseAdvertisedAddressTest, ByCardPrefersIPv4AndSkipsLinkLocal) {
  EXPECT_EQ(*ChooseAdvertisedAddress("interface:eth0", "10.1.0.1", Host()), "10.1.0.5");
  NetworkView host = Host();
  host.interfaces.erase(host.interfaces.begin() + 4);
  EXPECT_EQ(*ChooseAdvertisedAddress("interface:eth0", "10.1.0.1", host), "fd00::5");
  EXPECT_EQ(ChooseAdvertisedAddress("interface:ib0", "10.1.0.1", host).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChooseAdvertisedAddressTest, BySubnet) {
  EXPECT_EQ(*ChooseAdvertisedAddress("subnet:192.168.0.0/16", "10.1.0.1", Host()), "192.168.7.9");
  EXPECT_EQ(*ChooseAdvertisedAddress("subnet:fd00::/8", "10.1.0.1", Host()), "fd00::5");
  EXPECT_EQ(*ChooseAdvertisedAddress("subnet:192.168.7.8/31", "10.1.0.1", Host()), "192.168.7.9");
  for (const char* choice : {"subnet:192.168.7.10/31", "subnet:192.168.0.0", "subnet:x/8",
                             "subnet:10.0.0.0/33", "subnet:10.0.0.0/-1", "subnet:/8", "subnet:"}) {
    EXPECT_EQ(ChooseAdvertisedAddress(choice, "10.1.0.1", Host()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << choice;
  }
}

TEST(ChooseAdvertisedAddressTest, RefusesLoopbackWhenThePeerIsElsewhere) {
  for (const char* choice : {"127.0.0.1", "::1", "interface:lo", "subnet:127.0.0.0/8"}) {
    const absl::Status status = ChooseAdvertisedAddress(choice, "10.1.0.1", Host()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << choice;
    EXPECT_THAT(Message(status), HasSubstr("10.1.0.1"));
    EXPECT_TRUE(ChooseAdvertisedAddress(choice, "localhost", Host()).ok()) << choice;
    // The peer listens on one of our own cards: it is on this host.
    EXPECT_TRUE(ChooseAdvertisedAddress(choice, "10.1.0.5", Host()).ok()) << choice;
  }
}

TEST(IsLoopbackTest, KnowsEveryLoopbackAddress) {
  for (const char* address : {"127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"128.0.0.1", "10.0.0.1", "::2", "::ffff:10.0.0.1", "localhost", ""}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(ParseHostPortTest, AcceptsNamesAndBothKindsOfAddresses) {
  struct Case {
    const char *text, *host;
    int port;
  };
  for (const Case& c :
       {Case{"localhost:7070", "localhost", 7070}, Case{"10.0.0.1:1", "10.0.0.1", 1},
        Case{"[::1]:65535", "::1", 65535}, Case{"node-7.a:80", "node-7.a", 80}}) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(c.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
    EXPECT_EQ(parsed->ToString(), c.text);
  }
}

TEST(ParseHostPortTest, PortZeroIsForListenersOnly) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:0", 0)->port, 0);
  EXPECT_FALSE(ParseHostPort("127.0.0.1:0").ok());
  EXPECT_FALSE(ParseHostPort("127.0.0.1:-1", 0).ok());
  EXPECT_FALSE(ParseHostPort("127.0.0.1:65536", 0).ok());
}

TEST(ParseHostPortTest, RefusesWhatAResolverWouldMisread) {
  for (const char* text : {"", "host", "host:", ":80", "host:0", "host:65536", "host:x", "::1:80",
                           "[::1]", "[1.2.3.4]:80", "[]:80", "12345:80", "1.2.3:80", "a b:80",
                           "http://host:80", "host:99999999999999999999"}) {
    const absl::Status status = ParseHostPort(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(status), HasSubstr(text));
  }
}

TEST(RouteSourceTest, LoopbackIsReachedFromLoopback) {
  const absl::StatusOr<std::string> source = RouteSource("127.0.0.1");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(IsLoopback(*source));
}

TEST(RouteSourceTest, NamesAHostThatDoesNotResolve) {
  const absl::Status status = RouteSource("no-such-host.invalid").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("no-such-host.invalid"));
}

TEST(ReadNetworkTest, EveryHostHasALoopbackCard) {
  const absl::StatusOr<NetworkView> network = ReadNetwork();
  ASSERT_TRUE(network.ok()) << network.status();
  bool found = false;
  for (const InterfaceAddress& item : network->interfaces) found |= IsLoopback(item.address);
  EXPECT_TRUE(found);
}

TEST(CheckMutuallyReachableTest, LoopbackIsForRanksOfOneHostOnly) {
  const std::string here = *LoopbackDomain();
  EXPECT_EQ(here, *LoopbackDomain());
  std::vector<AdvertisedAddress> ranks = {{"rank 0", "127.0.0.1", here},
                                          {"rank 1", "127.0.0.1", here}};
  EXPECT_TRUE(CheckMutuallyReachable(ranks).ok());
  ranks[1] = {"rank 1", "10.1.0.5", "another boot"};
  const absl::Status status = CheckMutuallyReachable(ranks);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("rank 0 advertises 127.0.0.1"));
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  ranks[0].address = "10.1.0.4";
  EXPECT_TRUE(CheckMutuallyReachable(ranks).ok());
}

}  // namespace
}  // namespace cairn

#include "common/security/peer_host.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(PeerHostTest, AHostHasAllAddressesOfItsIpv6Network) {
  const std::string network(8, 'n'), other(8, 'o');
  EXPECT_EQ(HostOfIp(network + "12345678"), HostOfIp(network + "87654321"));
  EXPECT_NE(HostOfIp(network + "12345678"), HostOfIp(other + "12345678"));
  EXPECT_EQ(HostOfIp("abcd"), "abcd");
  EXPECT_NE(HostOfIp("abcd"), HostOfIp("abce"));
  const std::string loopback = std::string(15, '\0') + '\1';
  EXPECT_EQ(HostOfIp(loopback), loopback);
}

TEST(PeerHostTest, TextNamesTheSameHosts) {
  EXPECT_EQ(HostOfAddress("10.0.0.7:7000"), "10.0.0.7");
  EXPECT_EQ(HostOfAddress("[2001:db8::7]:7000"), "2001:db8::/64");
  EXPECT_EQ(HostOfAddress("[2001:db8::1:2:3:4]:80"), "2001:db8::/64");
  EXPECT_EQ(HostOfAddress("[2001:db8:0:1::7]:7000"), "2001:db8:0:1::/64");
  EXPECT_EQ(HostOfAddress("[::1]:7000"), "::1");
  EXPECT_EQ(HostOfAddress("[::ffff:10.0.0.7]:7000"), "10.0.0.7");
  EXPECT_EQ(HostOfAddress("[fe80::1%eth0]:7000"), HostOfAddress("[fe80::2]:7000"));
}

TEST(PeerHostTest, OtherTextIsAHostOfItsOwn) {
  EXPECT_EQ(HostOfAddress("local socket"), "local socket");
  EXPECT_EQ(HostOfAddress("unix:/run/x"), "unix");
  EXPECT_EQ(HostOfAddress("[nonsense]:1"), "nonsense");
  EXPECT_EQ(HostOfAddress(""), "");
}

}  // namespace
}  // namespace sluice

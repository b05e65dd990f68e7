#include "common/transport/room_reports.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RoomReportsTest, APeerIsACertificateOnAHostAndNotOnEachOfItsAddresses) {
  EXPECT_EQ(PeerOn({"worker", "3", "10.0.0.7:5000"}), "worker 3@10.0.0.7");
  const std::string peer = PeerOn({"worker", "3", "[2001:db8:0:1::7]:5000"});
  EXPECT_EQ(PeerOn({"worker", "3", "[2001:db8:0:1:ffff::9]:80"}), peer);
  EXPECT_NE(PeerOn({"worker", "3", "[2001:db8:0:2::7]:5000"}), peer);
  EXPECT_NE(PeerOn({"worker", "4", "[2001:db8:0:1::7]:5000"}), peer);
}

TEST(RoomReportsTest, OnlyVerifiedCallersHaveACertificate) {
  EXPECT_EQ(CertificateOf({"worker", "3", "10.0.0.7:5000"}), "worker 3");
  EXPECT_NE(CertificateOf({"worker", "", "10.0.0.7:5000"}), "");
  EXPECT_EQ(CertificateOf({"unverified", "", "10.0.0.7:5000"}), "");
  EXPECT_EQ(CertificateOf({"none", "", "10.0.0.7:5000"}), "");
}

}  // namespace
}  // namespace sluice

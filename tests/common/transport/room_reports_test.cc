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

TEST(RoomReportsTest, AFloodOfCutsIsCountedAndWritesFewLines) {
  int lines = 0, cuts = 0;
  RoomReports::Options options;
  options.log = [&](const std::string&) { ++lines; };
  options.on_cut = [&](const std::string&, const absl::Status&) { ++cuts; };
  RoomReports reports(std::move(options));
  const int flood = 3 * LimitedLog::kBurstOfCallers;
  for (int i = 0; i < flood; ++i)
    reports.Cut({"worker", "3", "h:1"}, "/method", absl::ResourceExhaustedError("reads nothing"));
  EXPECT_EQ(cuts, flood);
  EXPECT_GE(lines, LimitedLog::kBurstOfCallers);
  EXPECT_LT(lines, 2 * LimitedLog::kBurstOfCallers);
}

}  // namespace
}  // namespace sluice

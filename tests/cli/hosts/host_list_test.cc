#include "cli/hosts/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<HostSpec> Hosts(const std::string& text) {
  return ParseHostList(text, "--hosts").value_or(std::vector<HostSpec>());
}

TEST(HostListTest, ReadsUsersCountsAndIpv6) {
  EXPECT_THAT(
      Hosts("a:4,me@b.example,[fe80::1]:2,[::1],10.0.0.1:0"),
      ElementsAre(HostSpec{"", "a", 4}, HostSpec{"me", "b.example", 1}, HostSpec{"", "fe80::1", 2},
                  HostSpec{"", "::1", 1}, HostSpec{"", "10.0.0.1", 0}));
}

TEST(HostListTest, RefusesWhatIsNoHostAndNamesIt) {
  for (const char* text : {"", "a,,b", "a:x", "a:-1", "a:1001", "-oProxyCommand=x", "@a", "-l@a",
                           "[a]:2", "[::1", "[::1]4", "a b", "a;b", "a:1,a:2", "a:0"}) {
    const auto hosts = ParseHostList(text, "--hosts");
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(hosts.status().message(), HasSubstr("--hosts")) << text;
  }
}

TEST(HostListTest, SaysHowToWriteAnIpv6Address) {
  EXPECT_THAT(ParseHostList("fe80::1:4", "--hosts").status().message(), HasSubstr("[fe80::1:4]"));
}

TEST(HostListTest, ReadsFilesOfMpiAndComments) {
  const auto hosts = ParseHostFile("# two\na:4\n\n  me@b slots=2  # big\nc\n", "--hosts_file");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(*hosts,
              ElementsAre(HostSpec{"", "a", 4}, HostSpec{"me", "b", 2}, HostSpec{"", "c", 1}));
  EXPECT_EQ(WorkersOf(*hosts), 7U);
  EXPECT_FALSE(ParseHostFile("a 4 5\n", "--hosts_file").ok());
  EXPECT_FALSE(ParseHostFile("# none\n", "--hosts_file").ok());
}

TEST(HostListTest, PortsAreARangeThatIsLongEnough) {
  const auto ports = ParsePorts("7100-7103", 4);
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_EQ(ports->from, 7100U);
  EXPECT_EQ(ports->to, 7103U);
  for (const char* text : {"7100", "7103-7100", "0-9", "1-65536", "a-b", "1-2-3"})
    EXPECT_FALSE(ParsePorts(text, 1).ok()) << text;
  EXPECT_FALSE(ParsePorts("7100-7103", 5).ok());
}

TEST(HostListTest, PlacesWorkersByCountAndPserversInTurn) {
  const Placement placement = PlaceDaemons(Hosts("a:2,b:0,c:1"), 4, 2);
  EXPECT_EQ(placement.scheduler, 2U);
  EXPECT_THAT(placement.workers, ElementsAre(0, 0, 2));
  EXPECT_THAT(placement.pservers, ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(placement.WorkersOn(0), 2U);
}

TEST(HostListTest, ALostDaemonGoesToTheHostWithTheFewest) {
  EXPECT_EQ(HostForLost({3, -1, 2, 2}), 2);
  EXPECT_EQ(HostForLost({-1, -1}), -1);
}

}  // namespace
}  // namespace sluice::cli

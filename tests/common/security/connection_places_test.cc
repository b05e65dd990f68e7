#include "common/security/connection_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {
namespace {

using Outcome = ConnectionPlaces::Outcome;

TcpEnd Peer(uint8_t host, uint16_t port) { return {std::string("\x0a\0\0", 3) + char(host), port}; }

ConnectionBounds Bounds(size_t open, size_t per_host) {
  ConnectionBounds bounds;
  bounds.max_open = open;
  bounds.max_per_host = per_host;
  return bounds;
}

TEST(ConnectionPlacesTest, TheOldestSilentConnectionOfAFullHostMakesRoom) {
  ConnectionPlaces places(Bounds(100, 3));
  for (int id = 1; id <= 3; ++id) EXPECT_FALSE(places.Open(id, Peer(1, id)).given_up.has_value());
  places.Called(Peer(1, 1).ToText(), "worker 0");
  const auto decision = places.Open(4, Peer(1, 4));
  EXPECT_EQ(decision.outcome, Outcome::kAdmitted);
  EXPECT_EQ(decision.given_up, 2);
  EXPECT_EQ(decision.peer_given_up.port, 2);
  EXPECT_EQ(places.open(), 3u);
  EXPECT_EQ(places.given_up(), 1u);
  EXPECT_FALSE(places.Open(5, Peer(2, 5)).given_up.has_value()) << "another host has room";
  places.Closed(2);
  EXPECT_EQ(places.given_up(), 0u);
}

TEST(ConnectionPlacesTest, WithoutTlsConnectionsThatHaveCalledAreNeverGivenUp) {
  ConnectionPlaces places(Bounds(4, 2));
  for (int id = 1; id <= 4; ++id) {
    places.Open(id, Peer(id % 2, id));
    places.Called(Peer(id % 2, id).ToText(), "");
  }
  EXPECT_EQ(places.silent(), 0u);
  EXPECT_EQ(places.Open(5, Peer(1, 5)).outcome, Outcome::kHostIsFull);
  const auto refused = places.Open(5, Peer(7, 5));
  EXPECT_EQ(refused.outcome, Outcome::kServerIsFull);
  EXPECT_FALSE(refused.given_up.has_value());
  EXPECT_EQ(places.open(), 4u);
  places.Closed(1);
  EXPECT_EQ(places.Open(5, Peer(7, 5)).outcome, Outcome::kAdmitted);
}

// One certificate from two hosts, and two members that have called before it.
TEST(ConnectionPlacesTest, ACertificateWithMoreThanItsShareMakesRoomForOthers) {
  ConnectionPlaces places(Bounds(16, 8));
  const auto call = [&](int id, uint8_t host, const char* certificate) {
    const auto decision = places.Open(id, Peer(host, id));
    if (decision.outcome == Outcome::kAdmitted) places.Called(Peer(host, id).ToText(), certificate);
    return decision;
  };
  call(1, 1, "worker 1");
  call(2, 2, "operator ");
  for (int id = 3; id <= 9; ++id) call(id, 1, "worker 7");
  for (int id = 10; id <= 16; ++id) call(id, 2, "worker 7");
  EXPECT_EQ(places.open(), 16u);
  EXPECT_EQ(call(17, 1, "worker 2").given_up, 9) << "the newest of the same host";
  places.Closed(9);
  EXPECT_EQ(call(18, 3, "worker 3").given_up, 16) << "the newest of all";
  EXPECT_TRUE(places.Open(19, Peer(3, 19)).certificate.has_value());
  // At a quarter of each bound it keeps what it has.
  int given_up = 0;
  for (int id = 20; id <= 60; ++id) {
    const auto decision = call(id, static_cast<uint8_t>(id), std::to_string(id).c_str());
    given_up += decision.given_up.has_value() ? 1 : 0;
    if (decision.given_up.has_value()) places.Closed(*decision.given_up);
  }
  EXPECT_EQ(call(61, 61, "worker 61").outcome, Outcome::kServerIsFull);
  EXPECT_EQ(given_up, 8) << "down to four of sixteen, and the silent one";
}

TEST(ConnectionPlacesTest, AFloodOfOneHostGivesUpItsOwnConnectionsForOthers) {
  ConnectionPlaces places(Bounds(8, 6));
  for (int id = 1; id <= 6; ++id) places.Open(id, Peer(1, id));
  for (int id = 7; id <= 8; ++id) places.Open(id, Peer(2, id));
  for (int id = 9; id <= 10; ++id)
    EXPECT_EQ(places.Open(id, Peer(static_cast<uint8_t>(id), 1)).given_up, id - 8);
  EXPECT_EQ(places.open(), 8u);
}

TEST(ConnectionPlacesTest, OfHostsWithEquallyManyTheOldestConnectionMakesRoom) {
  ConnectionPlaces places(Bounds(3, 3));
  for (int id = 1; id <= 3; ++id) places.Open(id, Peer(static_cast<uint8_t>(10 - id), 1));
  for (int id = 4; id <= 6; ++id) {
    EXPECT_EQ(places.Open(id, Peer(static_cast<uint8_t>(id * 10), 1)).given_up, id - 3);
    places.Closed(id - 3);
  }
}

// The owner of a socket that was given up may be slow to close it.
TEST(ConnectionPlacesTest, ThoseThatWereGivenUpAndNotClosedAreBoundedToo) {
  ConnectionPlaces places(Bounds(1000, 80));
  int admitted = 0;
  for (int id = 0; id < 300; ++id)
    admitted += places.Open(id, Peer(1, id)).outcome == Outcome::kAdmitted ? 1 : 0;
  EXPECT_EQ(places.open(), 80u);
  EXPECT_EQ(places.given_up(), 20u);
  EXPECT_EQ(admitted, 100);
  EXPECT_EQ(places.Open(1000, Peer(2, 1)).outcome, Outcome::kAdmitted) << "another host";
  places.Closed(0);
  EXPECT_EQ(places.Open(1001, Peer(1, 1)).outcome, Outcome::kAdmitted);
}

TEST(ConnectionPlacesTest, AnIpv6HostHasAllAddressesOfItsNetwork) {
  ConnectionPlaces places(Bounds(100, 1));
  const std::string network(8, '\x20');
  EXPECT_EQ(places.Open(1, {network + std::string(8, 1), 5}).given_up, std::nullopt);
  EXPECT_EQ(places.Open(2, {network + std::string(8, 2), 5}).given_up, 1);
  EXPECT_EQ(places.Open(3, {std::string(16, 3), 5}).given_up, std::nullopt);
}

TEST(ConnectionPlacesTest, APortThatIsUsedAgainIsThatOfTheNewConnection) {
  ConnectionPlaces places(Bounds(100, 2));
  places.Open(1, Peer(1, 7));
  places.Open(2, Peer(1, 7));  // the first one has ended, and is not closed yet
  places.Closed(1);
  places.Called(Peer(1, 7).ToText(), "");
  EXPECT_EQ(places.silent(), 0u);
  places.Closed(2);
  places.Closed(2);
  places.Called(Peer(1, 7).ToText(), "");
  EXPECT_EQ(places.open(), 0u);
}

TEST(ConnectionPlacesTest, AConnectionMayCloseAfterANewerOneOfItsPort) {
  ConnectionPlaces places(Bounds(100, 2));
  places.Open(1, Peer(1, 7));
  places.Open(2, Peer(1, 7));
  places.Closed(2);
  places.Closed(1);
  EXPECT_EQ(places.open(), 0u);
}

std::string CertificateOf(int id) {
  return id % 3 == 0 ? "" : id % 7 == 0 ? "worker 1" : "worker 0";
}

TEST(ConnectionPlacesTest, NoOrderOfEventsBreaksABoundOrEndsAConnectionThatHasCalled) {
  std::mt19937 random(std::random_device{}());
  const ConnectionBounds bounds = Bounds(20, 8);
  ConnectionPlaces places(bounds);
  std::map<int, TcpEnd> open;         // also those that were given up
  std::map<std::string, int> newest;  // of each port, until it closes
  std::set<int> called, given_up;
  int next = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t what = random() % 8;
    auto any = open.begin();
    if (!open.empty()) std::advance(any, random() % open.size());
    if (what < 5) {
      const TcpEnd peer = Peer(random() % 6, random() % 8);
      const auto decision = places.Open(next, peer);
      if (decision.outcome == Outcome::kAdmitted) {
        open[next] = peer;
        newest[peer.ToText()] = next;
      }
      if (decision.given_up.has_value()) {
        const int id = *decision.given_up;
        ASSERT_EQ(called.erase(id), decision.certificate.has_value() ? 1u : 0u);
        ASSERT_TRUE(!decision.certificate.has_value() || !CertificateOf(id).empty());
        ASSERT_TRUE(given_up.insert(*decision.given_up).second);
      }
      ++next;
    } else if (what == 5 && !open.empty()) {
      const std::string peer = any->second.ToText();
      if (newest.count(peer) > 0 && given_up.count(newest[peer]) == 0) {
        places.Called(peer, CertificateOf(newest[peer]));
        called.insert(newest[peer]);
      } else {
        places.Called(peer, "worker 9");
      }
    } else if (!open.empty()) {
      places.Closed(any->first);
      const auto of_port = newest.find(any->second.ToText());
      if (of_port != newest.end() && of_port->second == any->first) newest.erase(of_port);
      called.erase(any->first);
      given_up.erase(any->first);
      open.erase(any);
    }
    std::map<std::string, size_t> of_host;
    for (const auto& [id, peer] : open) of_host[peer.address] += 1 - given_up.count(id);
    for (const auto& [host, number] : of_host) ASSERT_LE(number, bounds.max_per_host);
    ASSERT_EQ(places.open(), open.size() - given_up.size());
    ASSERT_EQ(places.given_up(), given_up.size());
    ASSERT_EQ(places.silent(), places.open() - called.size());
    ASSERT_LE(places.open(), bounds.max_open);
    ASSERT_LE(given_up.size(), size_t{16});
  }
}

TEST(ConnectionPlacesTest, AClusterHasRoomForFourConnectionsOfEachMemberBehindOneAddress) {
  LimitsConfig limits;
  EXPECT_EQ(ConnectionBounds::For(4, 2, limits).max_per_host, 1024u);
  EXPECT_EQ(ConnectionBounds::For(4, 2, limits).max_open, 2048u);
  EXPECT_EQ(ConnectionBounds::For(500, 20, limits).max_per_host, 4 * 520u);
  EXPECT_EQ(ConnectionBounds::For(0, 1, limits).max_per_host, 4 * 1025u);
  limits.set_max_streams(2000);
  EXPECT_EQ(ConnectionBounds::For(4, 2, limits).max_per_host, 2000u);
  EXPECT_EQ(ConnectionBounds::For(4, 2, limits).max_open, 4000u);
  EXPECT_EQ(ConnectionBounds::For(0, 1, limits).max_per_host, 4 * 2001u);
}

}  // namespace
}  // namespace sluice

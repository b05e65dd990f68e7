#include "common/shm_transport/shm_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_link.h"
#include "tests/common/shm_transport/stream_pair.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class ShmPeerTest : public ::testing::Test {
 protected:
  // The peer of the client's end, played by the server's.
  ShmPeer Watch(ShmPeer::Role role = ShmPeer::Role::kServer) {
    return ShmPeer(links_.client.socket.fd(), role, absl::Seconds(10), absl::Seconds(3), now_);
  }
  void Send(const std::string& packet) { ASSERT_TRUE(links_.server.socket.Send(packet).ok()); }
  // The next packet that the peer gets; "" when there is none.
  std::string Got() {
    const auto packet = links_.server.socket.Receive(absl::ZeroDuration());
    return packet.ok() ? packet->bytes : "";
  }
  void Advance(int seconds) { now_ += std::chrono::seconds(seconds); }

  LinkPair links_{4096};
  ShmPeer::Time now_ = ShmPeer::Time() + std::chrono::hours(1);
};

TEST_F(ShmPeerTest, PingsAreAnswered) {
  ShmPeer peer = Watch();
  EXPECT_FALSE(peer.Read(now_).any);
  Send("p");
  const ShmPeer::Heard heard = peer.Read(now_);
  EXPECT_TRUE(heard.any);
  EXPECT_TRUE(heard.end.ok()) << heard.end;
  EXPECT_EQ(Got(), "o");
  EXPECT_EQ(Got(), "");
}

TEST_F(ShmPeerTest, OnlyAServerEndsTheStreamWithAStatus) {
  ShmPeer server = Watch(), client = Watch(ShmPeer::Role::kClient);
  SendEnd(links_.server.socket.fd(), absl::AbortedError("enough"));
  Send("w");
  EXPECT_EQ(server.Read(now_).end, absl::AbortedError("enough")) << "later packets change nothing";
  SendEnd(links_.server.socket.fd(), absl::AbortedError("enough"));
  EXPECT_EQ(client.Read(now_).end.code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmPeerTest, UnknownPacketsAndCodesEndTheStream) {
  ShmPeer peer = Watch();
  for (const char* packet : {"x", "e", "e\x7f"}) {
    Send(packet);
    EXPECT_EQ(peer.Read(now_).end.code(), absl::StatusCode::kDataLoss) << packet;
  }
}

TEST_F(ShmPeerTest, APeerIsGoneOnceItsPacketsAreRead) {
  ShmPeer peer = Watch();
  SendEnd(links_.server.socket.fd(), absl::InternalError("last words"));
  links_.server = ShmLink();
  EXPECT_EQ(peer.Read(now_).end, absl::InternalError("last words"));
  EXPECT_TRUE(peer.gone());
  EXPECT_TRUE(peer.Read(now_).any);
}

TEST_F(ShmPeerTest, ASilentPeerIsPingedAndThenGivenUp) {
  ShmPeer peer = Watch();
  Advance(9);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "");
  Advance(2);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "p");
  Advance(2);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "") << "one ping is enough";
  Advance(2);
  const absl::Status given_up = peer.CheckAlive(now_);
  EXPECT_EQ(given_up.code(), absl::StatusCode::kUnavailable);
  // The test plays the peer itself.
  EXPECT_THAT(std::string(given_up.message()), HasSubstr(absl::StrCat("process ", getpid())));
}

TEST_F(ShmPeerTest, AnAnswerShowsThatThePeerLives) {
  ShmPeer peer = Watch();
  Advance(11);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "p");
  Send("o");
  EXPECT_TRUE(peer.Read(now_).end.ok());
  Advance(9);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "");
}

TEST_F(ShmPeerTest, WhatIsReadFromTheRingShowsItToo) {
  ShmPeer peer = Watch();
  Advance(9);
  peer.SetHeard(now_);
  Advance(9);
  EXPECT_TRUE(peer.CheckAlive(now_).ok());
  EXPECT_EQ(Got(), "");
}

TEST_F(ShmPeerTest, AFloodOfPacketsIsReadInTurns) {
  ShmPeer peer = Watch();
  constexpr int kPackets = 40;
  for (int i = 0; i < kPackets; ++i) Send("w");
  int turns = 0;
  while (peer.Read(now_).any) ++turns;
  EXPECT_GT(turns, 1);
  EXPECT_LT(turns, kPackets);
}

}  // namespace
}  // namespace sluice

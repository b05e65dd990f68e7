#include "common/security/peer_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

PeerIdentity Peer(PeerRole role, const std::string& name) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = role;
  peer.name = name;
  return peer;
}

// The message with which a certificate with these URIs is refused.
std::string Refusal(const std::vector<std::string>& uris) {
  const auto peer = PeerOfUris(uris);
  EXPECT_TRUE(absl::IsPermissionDenied(peer.status())) << peer.status();
  return std::string(peer.status().message());
}

TEST(PeerIdentityTest, UriGivesBackItsRoleAndName) {
  for (const PeerRole role : kPeerRoles) {
    for (const std::string name : {"", "3", "alice"}) {
      const auto peer = PeerOfUris({PeerUri(role, name)});
      ASSERT_TRUE(peer.ok()) << peer.status();
      EXPECT_TRUE(peer->verified);
      EXPECT_EQ(peer->role, role);
      EXPECT_EQ(peer->name, name);
    }
  }
  EXPECT_EQ(PeerUri(PeerRole::kWorker, "3"), "spiffe://sluice/sluice/worker/3");
  EXPECT_EQ(PeerUri(PeerRole::kOperator, ""), "spiffe://sluice/sluice/operator");
}

TEST(PeerIdentityTest, TrustDomainMayBeAnything) {
  const auto peer = PeerOfUris({"spiffe://example.com/sluice/scheduler"});
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->role, PeerRole::kScheduler);
}

TEST(PeerIdentityTest, UrisOfOtherProgramsAreIgnored) {
  const auto peer = PeerOfUris({"https://example.com/sluice/operator", "spiffe://d/other/operator",
                                "spiffe://d/sluice/pserver/1", "spiffe://d", "node1.example.com",
                                "spiffe://d/sluicex/operator", "SPIFFE://d/sluice/operator"});
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->role, PeerRole::kPserver);
  EXPECT_EQ(peer->name, "1");
}

TEST(PeerIdentityTest, CertificateWithoutOneClearRoleIsRefused) {
  Refusal({});
  Refusal({"spiffe://d/other/worker", "worker", "/sluice/worker"});
  for (const std::string path :
       {"", "/", "/worker/", "/worker/3/4", "/Worker", "/work", "/workers", "//worker", "/worker//",
        "/unverified", "/worker?x=1", "/worker%2F3"}) {
    EXPECT_THAT(Refusal({"spiffe://d/sluice" + path}), HasSubstr("spiffe://d/sluice" + path));
  }
  // Not even when both are the same or one of them is useless: the certificate's issuer was wrong.
  Refusal({"spiffe://d/sluice/worker", "spiffe://d/sluice/operator"});
  Refusal({"spiffe://d/sluice/worker", "spiffe://d/sluice/worker"});
  Refusal({"spiffe://d/sluice/worker", "spiffe://d/sluice/nothing"});
}

TEST(PeerIdentityTest, RefusalIsPrintable) {
  EXPECT_THAT(Refusal({"spiffe://d/sluice/\x1b[31m"}), HasSubstr("\\x1b[31m"));
  EXPECT_EQ(Peer(PeerRole::kOperator, "\x1b").ToString(), "operator \\x1b");
}

TEST(PeerIdentityTest, PeerMayHaveTheRankOfItsCertificate) {
  EXPECT_TRUE(CheckPeer(Peer(PeerRole::kWorker, "3"), PeerRole::kWorker, 3).ok());
  EXPECT_TRUE(CheckPeer(Peer(PeerRole::kWorker, ""), PeerRole::kWorker, 0).ok());
  EXPECT_TRUE(CheckPeer(Peer(PeerRole::kWorker, ""), PeerRole::kWorker, 3).ok());
  EXPECT_TRUE(
      CheckPeer(Peer(PeerRole::kPserver, "4294967295"), PeerRole::kPserver, 4294967295).ok());
}

TEST(PeerIdentityTest, PeerMayHaveNoOtherRoleOrRank) {
  const auto refused = [](const PeerIdentity& peer, PeerRole role, uint32_t rank) {
    return absl::IsPermissionDenied(CheckPeer(peer, role, rank));
  };
  EXPECT_TRUE(refused(Peer(PeerRole::kWorker, "3"), PeerRole::kWorker, 2));
  EXPECT_TRUE(refused(Peer(PeerRole::kWorker, "3"), PeerRole::kPserver, 3));
  EXPECT_TRUE(refused(Peer(PeerRole::kPserver, ""), PeerRole::kWorker, 0));
  EXPECT_TRUE(refused(Peer(PeerRole::kOperator, ""), PeerRole::kWorker, 0));
  // A name that is no rank stands for no rank, not for 0 or for any.
  for (const std::string name : {"alice", "0x0", "0 0", "-1", "4294967296", "0.0"})
    EXPECT_TRUE(refused(Peer(PeerRole::kWorker, name), PeerRole::kWorker, 0)) << name;
  // A rank has one spelling.
  for (const std::string name : {" 1", "1 ", "01", "+1"})
    EXPECT_TRUE(refused(Peer(PeerRole::kWorker, name), PeerRole::kWorker, 1)) << name;
}

TEST(PeerIdentityTest, UnverifiedPeerMayHaveAnyRoleAndRank) {
  for (const PeerRole role : kPeerRoles)
    EXPECT_TRUE(CheckPeer(PeerIdentity(), role, 3).ok()) << PeerRoleName(role);
  EXPECT_FALSE(PeerIdentity().verified);
}

TEST(PeerIdentityTest, TextNamesRoleAndRank) {
  EXPECT_EQ(Peer(PeerRole::kWorker, "3").ToString(), "worker 3");
  EXPECT_EQ(Peer(PeerRole::kPserver, "").ToString(), "pserver (any rank)");
  EXPECT_EQ(Peer(PeerRole::kScheduler, "").ToString(), "scheduler");
  EXPECT_EQ(Peer(PeerRole::kOperator, "alice").ToString(), "operator alice");
  EXPECT_EQ(PeerIdentity().ToString(), "unverified");
}

}  // namespace
}  // namespace sluice

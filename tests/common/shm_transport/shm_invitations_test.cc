#include "common/shm_transport/shm_invitations.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

const ShmInvitations::Time kNow = ShmInvitations::Time() + std::chrono::hours(1);

PeerIdentity Worker(const std::string& name) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = PeerRole::kWorker;
  peer.name = name;
  return peer;
}

TEST(ShmInvitationsTest, ATokenStandsForItsIdentityOnce) {
  ShmInvitations invitations;
  const std::string of_0 = invitations.Issue(Worker("0"), kNow);
  const std::string of_1 = invitations.Issue(Worker("1"), kNow);
  const auto peer = invitations.Redeem(of_1, kNow);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->name, "1");
  EXPECT_EQ(invitations.Redeem(of_1, kNow).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(invitations.Redeem(of_0, kNow)->name, "0");
}

TEST(ShmInvitationsTest, UnknownTokensAreRefused) {
  ShmInvitations invitations;
  std::string token = invitations.Issue(Worker("0"), kNow);
  token[0] ^= 1;
  for (const std::string& wrong : {token, std::string(), std::string(16, '\0')}) {
    EXPECT_EQ(invitations.Redeem(wrong, kNow).status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST(ShmInvitationsTest, ATokenIsRefusedWhenItIsTooOld) {
  ShmInvitations invitations;
  const std::string old = invitations.Issue(Worker("0"), kNow);
  const std::string kept = invitations.Issue(Worker("1"), kNow);
  EXPECT_TRUE(invitations.Redeem(kept, kNow + ShmInvitations::kLifetime).ok());
  EXPECT_EQ(invitations.Redeem(old, kNow + ShmInvitations::kLifetime + std::chrono::seconds(1))
                .status()
                .code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(ShmInvitationsTest, ACallerWithoutEndGivesUpItsOwn) {
  ShmInvitations invitations;
  const auto from = [](const std::string& address) {
    PeerIdentity peer = Worker("");
    peer.address = address;
    return peer;
  };
  // They share certificate and host.
  const std::string honest = invitations.Issue(from("127.0.0.1:1000"), kNow);
  const std::string first = invitations.Issue(from("127.0.0.1:2000"), kNow);
  for (size_t i = 0; i < 3 * ShmInvitations::kMaxOpen; ++i)
    invitations.Issue(from("127.0.0.1:2000"), kNow);
  EXPECT_FALSE(invitations.Redeem(first, kNow).ok());
  EXPECT_TRUE(invitations.Redeem(honest, kNow).ok());
}

TEST(ShmInvitationsTest, OldOnesMakeRoom) {
  ShmInvitations invitations;
  for (size_t i = 0; i < ShmInvitations::kMaxOpenPerPeer; ++i) invitations.Issue(Worker("0"), kNow);
  const auto later = kNow + ShmInvitations::kLifetime + std::chrono::seconds(1);
  std::vector<std::string> tokens;
  for (size_t i = 0; i < ShmInvitations::kMaxOpenPerPeer; ++i)
    tokens.push_back(invitations.Issue(Worker("0"), later));
  for (const std::string& token : tokens) EXPECT_TRUE(invitations.Redeem(token, later).ok());
}

TEST(ShmInvitationsTest, TheOldestAreForgottenWhenThereAreTooMany) {
  ShmInvitations invitations;
  std::vector<std::string> tokens;
  for (size_t i = 0; i < ShmInvitations::kMaxOpen + 10; ++i)
    tokens.push_back(invitations.Issue(Worker(absl::StrCat(i)), kNow));
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), tokens.size());
  EXPECT_FALSE(invitations.Redeem(tokens[9], kNow).ok());
  EXPECT_TRUE(invitations.Redeem(tokens[10], kNow).ok());
  EXPECT_TRUE(invitations.Redeem(tokens.back(), kNow).ok());
}

}  // namespace
}  // namespace sluice

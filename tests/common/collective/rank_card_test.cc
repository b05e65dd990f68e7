#include "common/collective/rank_card.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "gtest/gtest.h"

namespace sluice {
namespace {

std::vector<std::string> Cards(const char* engine, uint64_t generation) {
  std::vector<std::string> cards;
  for (uint32_t r = 0; r < 3; ++r)
    cards.push_back(NewCard(engine, generation, r, 3, "here").SerializeAsString());
  return cards;
}

TEST(RankCardTest, CardsOfTheMembersAreRead) {
  std::vector<std::string> cards = Cards("shm", 7);
  cards[1] = "not read";
  const auto parsed = ParseCards("shm", 7, cards, {0, 2});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)[1].rank(), 2u);
  EXPECT_EQ((*parsed)[1].host(), "here");
  EXPECT_NE((*parsed)[0].nonce(), (*parsed)[1].nonce());
  EXPECT_EQ(PlaceIn({0, 2}, 2), 1u);
}

TEST(RankCardTest, OtherBytesAreRefused) {
  const std::vector<uint32_t> all = {0, 1, 2};
  EXPECT_FALSE(ParseCards("shm", 8, Cards("shm", 7), all).ok());   // generation
  EXPECT_FALSE(ParseCards("gloo", 7, Cards("shm", 7), all).ok());  // engine
  std::vector<std::string> cards = Cards("shm", 7);
  std::swap(cards[0], cards[1]);
  EXPECT_FALSE(ParseCards("shm", 7, cards, all).ok());  // rank
  cards = Cards("shm", 7);
  cards.pop_back();
  EXPECT_FALSE(ParseCards("shm", 7, cards, {0, 1}).ok());  // number of ranks
  cards = Cards("shm", 7);
  for (const std::string& bad : {std::string("\xff\xff"), std::string(), std::string(70000, 'x')}) {
    cards[2] = bad;
    EXPECT_EQ(ParseCards("shm", 7, cards, all).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RankCardTest, TheHostIsTheSameInTheWholeProcess) {
  EXPECT_EQ(HostOfThisProcess(), HostOfThisProcess());
  EXPECT_GT(HostOfThisProcess().size(), 36u);
}

// Two containers that share a network may both name their users from 0.
TEST(RankCardTest, AnotherUserNamespaceIsAnotherHost) {
  const std::string here = HostOfThisProcess();
  const pid_t pid = fork();
  if (pid == 0) {
    const uid_t user = geteuid();
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);
    std::ofstream("/proc/self/uid_map") << user << " " << user << " 1" << std::endl;
    if (geteuid() != user) _exit(2);
    _exit(HostOfThisProcess() == here ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this machine allows no new user namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RankCardTest, LoopbackIsSharedWithinABootAndANetworkNamespace) {
  EXPECT_TRUE(ShareLoopback("boot/net:[1]/user:[2]/user:1000", "boot/net:[1]/user:[3]/user:0"));
  EXPECT_FALSE(ShareLoopback("boot/net:[1]/user:[2]/user:0", "boot/net:[4]/user:[2]/user:0"));
  EXPECT_FALSE(ShareLoopback("boot/net:[1]/user:[2]/user:0", "other/net:[1]/user:[2]/user:0"));
  EXPECT_TRUE(ShareLoopback(HostOfThisProcess(), HostOfThisProcess()));
}

}  // namespace
}  // namespace sluice

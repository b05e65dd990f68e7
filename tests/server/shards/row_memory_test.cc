#include "server/shards/row_memory.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class RowMemoryTest : public testing::Test {
 protected:
  RowMemory::User& NewUser() { return users_.emplace_back(memory_); }
  // How many pieces of `bytes` the user gets, which it touches before it takes the next one.
  uint64_t TakeAll(RowMemory::User* user, uint64_t bytes) {
    uint64_t pieces = 0;
    while (pieces < 2'000'000 && user->Take(bytes)) {
      ++pieces;
      available_ -= bytes;
    }
    return pieces;
  }

  FakeClock clock_;
  uint64_t available_ = 1024 * kMiB;  // a reserve of 64 MiB
  uint64_t readings_ = 0;
  const std::shared_ptr<RowMemory> memory_ = std::make_shared<RowMemory>(&clock_, [this] {
    ++readings_;
    return available_;
  });
  std::deque<RowMemory::User> users_;
};

TEST_F(RowMemoryTest, TakesEverythingButTheReserve) {
  EXPECT_EQ(TakeAll(&NewUser(), kMiB), 960u);
  EXPECT_EQ(available_, 64 * kMiB);
  available_ += kMiB;
  EXPECT_EQ(TakeAll(&NewUser(), kMiB), 1u) << "memory that comes back can be taken";
}

TEST_F(RowMemoryTest, TheReserveFollowsTheMemoryAtFirst) {
  for (const auto& [mib, reserve] : {std::pair{uint64_t{100}, uint64_t{25}},
                                     {400, 64},
                                     {8192, 512},
                                     {uint64_t{1} << 20, 2048}}) {
    available_ = mib * kMiB;
    RowMemory::User user(std::make_shared<RowMemory>(&clock_, [this] { return available_; }));
    TakeAll(&user, kMiB);
    EXPECT_EQ(available_, reserve * kMiB) << mib;
  }
}

TEST_F(RowMemoryTest, WhatIsNotTouchedYetCountsAsUsed) {
  // Nothing becomes less available, as when blocks are reserved without being touched.
  uint64_t taken = 0;
  while (taken < 2000 && NewUser().Take(kMiB)) ++taken;
  EXPECT_EQ(taken, 960u);
  users_.front().Touched();
  EXPECT_TRUE(users_.back().Take(kMiB)) << "that memory is still available";
  users_.clear();
  EXPECT_TRUE(NewUser().Take(960 * kMiB)) << "users that are gone touch nothing";
}

TEST_F(RowMemoryTest, FiguresAreReadSeldomWhileThereIsMuch) {
  RowMemory::User& user = NewUser();
  for (int i = 0; i < 700; ++i) {
    ASSERT_TRUE(user.Take(kMiB));
    available_ -= kMiB;
  }
  EXPECT_LT(readings_, 12u);
}

TEST_F(RowMemoryTest, FiguresDoNotGrowOld) {
  RowMemory::User& user = NewUser();
  ASSERT_TRUE(user.Take(kMiB));
  available_ = 10 * kMiB;  // something else has taken it
  clock_.Advance(RowMemory::kFresh);
  EXPECT_FALSE(user.Take(4096));
  EXPECT_NE(user.Figures().find("10.0 MiB"), std::string::npos) << user.Figures();
}

TEST_F(RowMemoryTest, OthersMayUseHalfOfTheReserve) {
  TakeAll(&NewUser(), kMiB);
  uint64_t pieces = 0;
  for (; pieces < 1000 && memory_->TakeFromReserve(kMiB); ++pieces) available_ -= kMiB;
  EXPECT_EQ(pieces, 32u);
}

TEST_F(RowMemoryTest, WithoutFiguresThereIsNoBound) {
  available_ = UINT64_MAX;
  EXPECT_TRUE(NewUser().Take(uint64_t{1} << 50));
  EXPECT_TRUE(RowMemory::User(nullptr).Take(UINT64_MAX));
}

}  // namespace
}  // namespace sluice

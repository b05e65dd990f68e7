#include "server/shards/ready_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/hash.h"
#include "server/shards/row_store.h"

namespace sluice {
namespace {

constexpr size_t kPage = MappedMemory::kHugePage;

bool IsZero(const MappedMemory& page) {
  return page.size() == kPage &&
         std::all_of(page.data(), page.data() + kPage, [](uint8_t byte) { return byte == 0; });
}

TEST(ReadyPagesTest, TakeDoesNotWaitAndNoPageIsKeptWithoutAUser) {
  ReadyPages pages;
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
  {
    ReadyPages::User user(&pages);
    EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
    (void)user.Take();  // announces; the thread may be quicker
    EXPECT_EQ(pages.WaitUntilReadyForTest(), 1);
  }
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
}

TEST(ReadyPagesTest, PagesAreZeroedAgainBeforeTheyAreReused) {
  ReadyPages pages;
  ReadyPages::User user(&pages);
  user.Announce();
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(pages.WaitUntilReadyForTest(), 1);
    MappedMemory page = user.Take();
    ASSERT_TRUE(IsZero(page)) << round;
    std::fill_n(page.data(), kPage, 0xFF);
    user.Return(std::move(page), /*taken=*/true);
  }
  // Memory that Take did not give is only unmapped.
  user.Return(MappedMemory(3 * kPage, MappedMemory::Pages::kSmall), /*taken=*/false);
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 1);
}

TEST(ReadyPagesTest, KeepsMorePagesReadyAsMoreAreTakenUpToABound) {
  ReadyPages pages;
  std::vector<MappedMemory> taken;
  {
    ReadyPages::User user(&pages);
    user.Announce();
    while (taken.size() < 16) {
      pages.WaitUntilReadyForTest();
      taken.push_back(user.Take());
      ASSERT_NE(taken.back().data(), nullptr);
    }
    EXPECT_EQ(pages.WaitUntilReadyForTest(), 3);
    std::vector<std::unique_ptr<ReadyPages::User>> others;
    while (others.size() < 2 * ReadyPages::kMost) {
      others.push_back(std::make_unique<ReadyPages::User>(&pages));
      others.back()->Announce();
    }
    EXPECT_EQ(pages.WaitUntilReadyForTest(), ReadyPages::kMost);
    others.clear();
    EXPECT_EQ(pages.WaitUntilReadyForTest(), 3);
  }
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
}

TEST(ReadyPagesTest, DestructorEndsABusyThread) {
  for (int round = 0; round < 20; ++round) {
    auto pages = std::make_unique<ReadyPages>();
    ReadyPages::User* user = new ReadyPages::User(pages.get());
    user->Announce();
    if (round % 2 == 0) pages->WaitUntilReadyForTest();
    user->Return(MappedMemory(kPage, MappedMemory::Pages::kSmall), /*taken=*/false);
    delete user;
  }
}

TEST(ReadyPagesTest, StoreOfFewRowsDoesNotAnnounceItself) {
  ReadyPages pages;
  RowStore store(16, 32, &pages);
  bool created;
  for (uint64_t key = 0; key < 4000; ++key) store.FindOrInsert(key, &created);
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
  for (uint64_t key = 0; key < 9000; ++key) store.FindOrInsert(key, &created);
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 1);
}

// Grows a store beyond an index of several pages and checks it at the end. Calls `pace` before each
// insertion.
template <typename Pace>
void GrowAndCheck(ReadyPages* pages, Pace pace) {
  constexpr uint32_t kRows = 450000;  // an index of 8 MiB
  RowStore store(1, 1, pages);
  bool created;
  for (uint32_t i = 0; i < kRows; ++i) {
    pace(i);
    const uint32_t id = store.FindOrInsert(MixHash(i), &created);
    ASSERT_TRUE(created);
    ASSERT_EQ(store.header(id)->count, 0);
    ASSERT_EQ(store.weights(id)[0], 0);
    ASSERT_EQ(store.state(id)[0], 0);
    store.header(id)->count = 1;
    store.weights(id)[0] = store.state(id)[0] = static_cast<float>(i);
  }
  std::vector<uint64_t> keys(kRows);
  for (uint32_t i = 0; i < kRows; ++i) keys[i] = MixHash(i);
  std::vector<uint32_t> rows(kRows);
  store.Find(keys.data(), kRows, rows.data());
  for (uint32_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(rows[i], i);
    ASSERT_EQ(store.weights(i)[0], static_cast<float>(i));
  }
}

TEST(ReadyPagesTest, StoreGrowsOnReadyPages) {
  ReadyPages pages;
  size_t taken = 0;
  GrowAndCheck(&pages, [&](uint32_t i) {
    if (i % 1000 != 0) return;
    pages.WaitUntilReadyForTest();
    taken = pages.taken_for_test();
  });
  // The store needs 6 blocks after the first and 4 pages of index. If a block and an index page
  // begin at once, only one page may be ready for both.
  EXPECT_GE(taken, 8);
  EXPECT_LE(taken, 10);
  EXPECT_EQ(pages.taken_for_test(), 0);
}

TEST(ReadyPagesTest, StoreGrowsWithoutReadyPages) {
  // No page is ever ready, because another user takes them all.
  ReadyPages pages;
  ReadyPages::User other(&pages);
  GrowAndCheck(&pages, [&](uint32_t) { (void)other.Take(); });
}

TEST(ReadyPagesTest, ManyStoresGrowAtOnce) {
  ReadyPages pages;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { GrowAndCheck(&pages, [](uint32_t) {}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pages.WaitUntilReadyForTest(), 0);
}

}  // namespace
}  // namespace sluice

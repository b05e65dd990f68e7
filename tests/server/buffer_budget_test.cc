#include "server/buffer_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(BufferBudgetTest, EachRankHasTheWholeBudget) {
  BufferBudget budget(2, 100);
  EXPECT_TRUE(budget.Take(0, 60));
  EXPECT_FALSE(budget.Take(0, 41));
  EXPECT_FALSE(budget.Take(0, UINT64_MAX));
  EXPECT_TRUE(budget.Take(0, 40));
  EXPECT_TRUE(budget.Take(1, 100)) << "another rank";
  EXPECT_FALSE(budget.Take(1, 1));
  budget.Give(0, 60);
  EXPECT_EQ(budget.taken(0), 40u);
  EXPECT_TRUE(budget.Take(0, 60));
}

TEST(BufferBudgetTest, ThreadsTogetherTakeNoMoreThanTheBudget) {
  BufferBudget budget(1, 1000);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) taken += budget.Take(0, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 333);
}

}  // namespace
}  // namespace sluice

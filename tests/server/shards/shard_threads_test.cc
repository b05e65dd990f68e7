#include "server/shards/shard_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

namespace sluice {
namespace {

using testing::Each;

TEST(ShardThreadsTest, EachItemRunsOnce) {
  for (const int helpers : {0, 1, 3}) {
    ShardThreads threads(helpers);
    for (const size_t n : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(n);
      threads.ForEach(n, [&](size_t i) { ++runs[i]; });
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(runs[i], 1) << helpers << " " << n << " " << i;
    }
  }
}

// Each item waits until all have begun, which needs as many threads.
TEST(ShardThreadsTest, ItemsRunSideBySideWithTheCaller) {
  constexpr size_t kThreads = 3;
  ShardThreads threads(kThreads - 1);
  std::atomic<size_t> begun{0};
  threads.ForEach(kThreads, [&](size_t) {
    ++begun;
    while (begun < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(begun, kThreads);
}

TEST(ShardThreadsTest, CallersDoNotWaitForEachOthersItems) {
  ShardThreads threads(1);
  std::atomic<bool> go_on{false};
  std::atomic<int> blocked{0};
  std::thread other([&] {
    threads.ForEach(2, [&](size_t) {
      ++blocked;
      while (!go_on) std::this_thread::yield();
    });
  });
  while (blocked < 2) std::this_thread::yield();  // the helper and the other caller
  size_t runs = 0;
  threads.ForEach(10, [&](size_t) { ++runs; });
  EXPECT_EQ(runs, 10u);
  go_on = true;
  other.join();
}

TEST(ShardThreadsTest, AnExceptionComesToTheCallerAfterAllItems) {
  for (const int helpers : {0, 1, 3}) {
    ShardThreads threads(helpers);
    std::atomic<int> runs{0};
    const auto work = [&](size_t i) {
      ++runs;
      if (i % 10 == 3) throw std::runtime_error("no room");
    };
    EXPECT_THROW(threads.ForEach(50, work), std::runtime_error);
    EXPECT_EQ(runs, 50);
    threads.ForEach(50, [&](size_t) { ++runs; });
    EXPECT_EQ(runs, 100);
  }
}

TEST(ShardThreadsTest, ManyCallersShareTheHelpers) {
  ShardThreads threads(2);
  std::vector<std::thread> callers;
  std::vector<size_t> sums(4);
  for (size_t& sum : sums) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<size_t> items{0};
        threads.ForEach(7, [&](size_t i) { items += i; });
        sum += items;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(sums, Each(200u * 21));
}

}  // namespace
}  // namespace sluice

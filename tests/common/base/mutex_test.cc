#include "common/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace sluice {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, ExcludesOthers) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(&counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&counter.mutex);
  EXPECT_EQ(counter.value, 4000);
}

TEST(CondVarTest, WakesAWaiterThatThenHoldsTheLock) {
  Counter counter;
  std::future<int> other;  // what another thread reads once it gets the lock
  std::thread waiter([&] {
    MutexLock lock(&counter.mutex);
    while (counter.value != 1) counter.changed.Wait(&counter.mutex);
    other = std::async(std::launch::async, [&] {
      MutexLock lock(&counter.mutex);
      return counter.value;
    });
    EXPECT_EQ(other.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    counter.value = 2;
  });
  {
    MutexLock lock(&counter.mutex);
    counter.value = 1;
    counter.changed.NotifyAll();
  }
  waiter.join();
  EXPECT_EQ(other.get(), 2);
}

TEST(CondVarTest, WaitForEndsWithoutANotification) {
  Counter counter;
  MutexLock lock(&counter.mutex);
  const auto begin = std::chrono::steady_clock::now();
  // A wakeup may be spurious, so wait until the time is up.
  while (counter.changed.WaitFor(&counter.mutex, std::chrono::milliseconds(5))) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(5));
  counter.value = 1;  // WaitFor has locked again, or the analysis and the sanitizer would complain
}

}  // namespace
}  // namespace sluice

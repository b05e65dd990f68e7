#include "common/base/task_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

namespace sluice {
namespace {

TEST(TaskThreadsTest, OneThreadRunsTasksInOrderAndTheDestructorRunsThoseThatWait) {
  std::vector<int> ran;
  {
    TaskThreads threads(1, 100);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(threads.Add([&ran, i] { ran.push_back(i); }));
  }
  ASSERT_EQ(ran.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ran[i], i);
}

TEST(TaskThreadsTest, RefusesMoreThanMayWaitAndDropsWhatItRefuses) {
  std::promise<void> begun, go;
  std::shared_future<void> gate(go.get_future());
  int ran = 0;
  TaskThreads threads(1, 2);
  ASSERT_TRUE(threads.Add([&] {
    begun.set_value();
    gate.wait();
  }));
  begun.get_future().wait();  // from now on nothing is taken from the queue
  EXPECT_TRUE(threads.Add([&] { ++ran; }));
  std::promise<void> last;
  EXPECT_TRUE(threads.Add([&] {
    ++ran;
    last.set_value();
  }));
  auto content = std::make_shared<int>(0);
  EXPECT_FALSE(threads.Add([&ran, content] { ran += 100; }));
  EXPECT_EQ(content.use_count(), 1);
  go.set_value();
  last.get_future().wait();
  EXPECT_EQ(ran, 2);
}

TEST(TaskThreadsTest, OneCallerCannotTakeTheRoomOfTheOthers) {
  std::promise<void> begun, go;
  std::shared_future<void> gate(go.get_future());
  std::vector<std::string> ran;
  {
    TaskThreads threads(1, 100, /*max_waiting_per_caller=*/2);
    ASSERT_TRUE(threads.Add([&] {
      begun.set_value();
      gate.wait();
    }));
    begun.get_future().wait();
    EXPECT_TRUE(threads.Add([&] { ran.push_back("a1"); }, "a"));
    EXPECT_TRUE(threads.Add([&] { ran.push_back("a2"); }, "a"));
    EXPECT_FALSE(threads.Add([&] { ran.push_back("a3"); }, "a"));
    std::promise<void> last;
    EXPECT_TRUE(threads.Add(
        [&] {
          ran.push_back("b1");
          last.set_value();
        },
        "b"));
    go.set_value();
    last.get_future().wait();
    EXPECT_TRUE(threads.Add([&] { ran.push_back("a4"); }, "a")) << "its earlier tasks have run";
  }
  EXPECT_EQ(ran, (std::vector<std::string>{"a1", "a2", "b1", "a4"}));
}

TEST(TaskThreadsTest, IdleThreadsTakeTasksThatMayNotWait) {
  std::promise<void> go;
  std::shared_future<void> gate(go.get_future());
  {
    TaskThreads threads(3, 0);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(threads.Add([gate] { gate.wait(); }));
    EXPECT_FALSE(threads.Add([gate] { gate.wait(); }));
    go.set_value();
  }
}

TEST(TaskThreadsTest, ATaskThatBlocksLeavesTheOtherThreads) {
  std::promise<void> go;
  std::shared_future<void> gate(go.get_future());
  TaskThreads threads(2, 100);
  ASSERT_TRUE(threads.Add([gate] { gate.wait(); }));
  std::promise<void> other;
  ASSERT_TRUE(threads.Add([&other] { other.set_value(); }));
  other.get_future().wait();
  go.set_value();
}

}  // namespace
}  // namespace sluice

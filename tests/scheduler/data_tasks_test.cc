#include "scheduler/data_tasks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sluice {
namespace {

IndexedFile File(const std::string& path, uint64_t bytes, uint32_t rank) {
  IndexedFile file;
  file.file.set_path(path);
  file.file.set_bytes(bytes);
  file.rank = rank;
  return file;
}

DataTasks::Options TwoWorkers(uint64_t task_bytes) {
  DataTasks::Options options;
  options.worker_num = 2;
  options.task_bytes = task_bytes;
  return options;
}

NextTaskRequest Ask(uint32_t rank, uint64_t finished, uint64_t number) {
  NextTaskRequest request;
  request.set_rank(rank);
  request.set_finished_task(finished);
  request.set_number(number);
  return request;
}

TEST(DataTasksTest, CoverEveryByteOnce) {
  auto tasks =
      DataTasks::Create(TwoWorkers(10), {File("b", 25, 1), File("a", 10, 0), File("c", 0, 0)});
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  std::map<std::string, std::vector<int>> touched = {{"a", std::vector<int>(10)},
                                                     {"b", std::vector<int>(25)}};
  uint64_t id = 0;
  for (const DataTask& task : tasks->tasks()) {
    EXPECT_EQ(task.id(), ++id);
    for (uint64_t i = task.begin(); i < task.end(); ++i) ++touched.at(task.path()).at(i);
  }
  for (const auto& [path, bytes] : touched) {
    for (const int n : bytes) EXPECT_EQ(n, 1) << path;
  }
}

TEST(DataTasksTest, DefaultSizeIsAShareOfTheDataWithinBounds) {
  EXPECT_EQ(DefaultTaskBytes(100, 2), 64u << 10);
  EXPECT_EQ(DefaultTaskBytes(uint64_t{64} << 20, 2), 2u << 20);
  EXPECT_EQ(DefaultTaskBytes(uint64_t{1} << 40, 2), 16u << 20);
}

TEST(DataTasksTest, EachEpochLeasesEveryTaskOnceInItsOwnOrder) {
  auto tasks = DataTasks::Create(TwoWorkers(1), {File("a", 64, 0)});
  ASSERT_TRUE(tasks.ok());
  std::vector<std::vector<uint64_t>> orders;
  for (const uint32_t epoch : {0, 1, 0}) {
    tasks->BeginEpoch(epoch);
    std::vector<uint64_t> order;
    for (uint64_t number = 1;; ++number) {
      const auto reply = tasks->Next(Ask(number % 2, 0, number));
      ASSERT_TRUE(reply.ok());
      if (reply->kind() == NextTaskReply::EPOCH_DONE) break;
      order.push_back(reply->task().id());
    }
    EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), 64u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(orders[0], orders[2]);
}

TEST(DataTasksTest, WithoutShuffleTasksFollowTheOrderOfTheFiles) {
  DataTasks::Options options = TwoWorkers(1);
  options.shuffle = false;
  auto tasks = DataTasks::Create(options, {File("a", 3, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(5);
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(tasks->Next(Ask(0, 0, id))->task().id(), id);
}

TEST(DataTasksTest, PinnedTasksGoToTheRankThatHasTheFile) {
  DataTasks::Options options = TwoWorkers(10);
  options.pinned = true;
  auto tasks = DataTasks::Create(options, {File("a", 10, 0), File("b", 20, 0), File("c", 10, 1)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  EXPECT_EQ(tasks->Next(Ask(1, 0, 1))->task().path(), "c");
  EXPECT_EQ(tasks->Next(Ask(1, 0, 2))->kind(), NextTaskReply::EPOCH_DONE);
  for (uint64_t n = 1; n <= 3; ++n)
    EXPECT_EQ(tasks->Next(Ask(0, 0, n))->kind(), NextTaskReply::TASK);
  EXPECT_EQ(tasks->Next(Ask(0, 0, 4))->kind(), NextTaskReply::EPOCH_DONE);
}

TEST(DataTasksTest, RepeatedRequestGetsTheSameAnswer) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t first = tasks->Next(Ask(0, 0, 1))->task().id();
  EXPECT_EQ(tasks->Next(Ask(0, 0, 1))->task().id(), first);
  const uint64_t second = tasks->Next(Ask(0, first, 2))->task().id();
  EXPECT_NE(second, first);
  EXPECT_EQ(tasks->Next(Ask(0, first, 2))->task().id(), second);
  EXPECT_FALSE(tasks->CheckEnded(0).ok());
  EXPECT_EQ(tasks->Next(Ask(0, second, 3))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_TRUE(tasks->CheckEnded(0).ok());
  EXPECT_TRUE(tasks->CheckComplete().ok());
}

TEST(DataTasksTest, ARankMayHoldSeveralTasksAndAcknowledgeThemLate) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t first = tasks->Next(Ask(0, 0, 1))->task().id();
  const uint64_t second = tasks->Next(Ask(0, 0, 2))->task().id();
  EXPECT_NE(first, second);
  EXPECT_EQ(tasks->Next(Ask(0, first, 3))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_FALSE(tasks->CheckComplete().ok());
  EXPECT_EQ(tasks->Next(Ask(0, second, 4))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_TRUE(tasks->CheckComplete().ok());
}

TEST(DataTasksTest, ARankCannotAcknowledgeATaskOfAnotherRank) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t task = tasks->Next(Ask(0, 0, 1))->task().id();
  EXPECT_TRUE(absl::IsFailedPrecondition(tasks->Next(Ask(1, task, 1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(tasks->Next(Ask(1, 99, 2)).status()));
  EXPECT_FALSE(tasks->CheckEnded(0).ok());
}

TEST(DataTasksTest, FileReportedByTwoRanksIsRefused) {
  const auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0), File("a", 20, 1)});
  EXPECT_TRUE(absl::IsInvalidArgument(tasks.status()));
}

}  // namespace
}  // namespace sluice

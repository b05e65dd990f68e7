#include "worker/data/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/base/clock.h"
#include "model/data/data_files.h"
#include "tests/common/base/fake_clock.h"
#include "tests/model/data/files_for_test.h"
#include "tests/worker/fake_scheduler.h"
#include "tests/worker/numbered_data.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class BatchSourceTest : public ::testing::Test {
 protected:
  BatchSourceTest() {
    context_.spec = &spec_;
    context_.model = &model_;
    context_.data = &data_;
    context_.scheduler = &scheduler_;
    context_.clock = Clock::Real();
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [](const std::string&) {};
    config()->mutable_data()->set_shuffle(true);
    config()->mutable_train()->set_seed(1);
  }
  JobConfig* config() { return spec_.mutable_config(); }

  SchemaModel model_;
  NumberedData data_;
  FakeScheduler scheduler_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  JobContext context_;
};

DataTask Task(uint64_t id, uint64_t begin, uint64_t end, uint64_t first_offset = 0) {
  DataTask task;
  task.set_id(id);
  task.set_path("f");
  task.set_begin(begin);
  task.set_end(end);
  task.set_first_offset(first_offset);
  return task;
}

TEST_F(BatchSourceTest, TasksAreCutIntoBatchesWithEveryExampleOnce) {
  config()->mutable_train()->set_batch_size(4);
  scheduler_.tasks = {Task(1, 0, 10), Task(2, 10, 10), Task(3, 10, 14)};
  scheduler_.failures = 1;  // one lost call, which is retried
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  std::multiset<float> seen;
  std::vector<std::pair<uint64_t, bool>> shape;
  while (FillNext(&source, &prepared)) {
    seen.insert(prepared.batch.label.begin(), prepared.batch.label.end());
    shape.emplace_back(prepared.batch.n, prepared.last_of_task);
    if (prepared.last_of_task) source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
  }
  EXPECT_THAT(shape, ElementsAre(Pair(4, false), Pair(4, false), Pair(2, true), Pair(4, true)));
  EXPECT_EQ(seen.size(), 14u);
  EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 14u);
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(1, 10), Pair(2, 0), Pair(3, 4)));
}

TEST_F(BatchSourceTest, ATaskInPartsHasTheExamplesOfAllOfThemInOneOrder) {
  const TempFolder folder;
  JobConfig job;
  for (const char* name : {"1", "2"}) job.mutable_data()->add_train_files(folder.Write(name, "x"));
  context_.files = *DataFiles::See(job, Env::Real());
  config()->mutable_train()->set_batch_size(4);
  DataTask task = Task(7, 0, 0);
  task.clear_path();
  for (const auto& [file, begin] : {std::pair<uint32_t, uint64_t>(0, 10), {0, 30}, {1, 5}}) {
    task.mutable_parts()->add_file(file);
    task.mutable_parts()->add_begin(begin);
    task.mutable_parts()->add_end(begin + 3);
  }
  data_.by_name = true;
  scheduler_.tasks = {task};
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  std::vector<float> order;
  while (FillNext(&source, &prepared)) {
    order.insert(order.end(), prepared.batch.label.begin(), prepared.batch.label.end());
    EXPECT_EQ(prepared.batch.task_end, order.size());
    if (prepared.last_of_task) source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
  }
  const std::vector<float> all = {100010, 100011, 100012, 100030, 100031,
                                  100032, 200005, 200006, 200007};
  EXPECT_THAT(order, testing::UnorderedElementsAreArray(all));
  EXPECT_NE(order, all) << "they are shuffled together";
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(7, 9)));

  // Leased again after a loss.
  task.set_first_offset(4);
  scheduler_.tasks = {task};
  TaskBatches rest(context_, 0);
  std::vector<float> again;
  while (FillNext(&rest, &prepared))
    again.insert(again.end(), prepared.batch.label.begin(), prepared.batch.label.end());
  EXPECT_EQ(again, std::vector<float>(order.begin() + 4, order.end()));

  task.mutable_parts()->set_file(1, 2);
  scheduler_.tasks = {task};
  TaskBatches wrong(context_, 0);
  EXPECT_THAT(std::string(wrong.Next().status().message()),
              testing::HasSubstr("training file 2, but this worker sees 2"));
}

TEST_F(BatchSourceTest, TheNextTaskIsFetchedWhereItIsKnown) {
  config()->mutable_train()->set_batch_size(10);
  for (uint64_t i = 0; i < 7; ++i) scheduler_.tasks.push_back(Task(i + 1, 10 * i, 10 * i + 10));
  scheduler_.most = 64;
  FakeClock clock;  // tasks last for no time, so one is leased, then two, then four
  context_.clock = &clock;
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  while (FillNext(&source, &prepared)) {
  }
  EXPECT_THAT(data_.fetched_ahead, ElementsAre(20, 40, 50, 60));
}

TEST_F(BatchSourceTest, ACallForWhichTheSchedulerHasNoMemoryIsRetried) {
  scheduler_.tasks = {Task(1, 0, 10)};
  scheduler_.failures = 2;
  scheduler_.failure = absl::ResourceExhaustedError("memory limit");
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  EXPECT_TRUE(FillNext(&source, &prepared));
  EXPECT_EQ(scheduler_.failures, 0);
}

TEST_F(BatchSourceTest, EachTaskOfTheFirstEpochIsSummarizedOnceAndReportedWithIt) {
  const OneExampleModel model;
  context_.model = &model;
  config()->mutable_train()->set_batch_size(4);
  for (const uint32_t epoch : {0, 1}) {
    stats_.BeginEpoch(epoch);
    scheduler_.tasks = {Task(1, 0, 10), Task(2, 10, 20, 3), Task(3, 20, 30)};
    TaskBatches source(context_, epoch);
    PreparedBatch prepared;
    while (FillNext(&source, &prepared)) {
    }
    const TrainReport report = stats_.EpochReport();
    EXPECT_EQ(report.has_summary(), epoch == 0);
    EXPECT_EQ(report.summary().examples(), epoch == 0 ? 3u : 0u);
  }
}

TEST_F(BatchSourceTest, LostReplyDoesNotLoseItsTask) {
  config()->mutable_train()->set_batch_size(10);
  scheduler_.tasks = {Task(1, 0, 10), Task(2, 10, 20), Task(3, 20, 30)};
  scheduler_.lost_replies = 2;
  scheduler_.waits = 1;
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  std::vector<uint64_t> trained;
  while (FillNext(&source, &prepared)) {
    trained.push_back(prepared.batch.task_id);
    source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
    scheduler_.lost_replies = 1;
  }
  EXPECT_THAT(trained, ElementsAre(1, 2, 3));
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(1, 10), Pair(2, 10), Pair(3, 10)));
}

TEST_F(BatchSourceTest, TaskLeasedAgainStartsAfterTheExamplesAlreadyTrained) {
  config()->mutable_train()->set_batch_size(4);
  scheduler_.tasks = {Task(1, 0, 10)};
  TaskBatches whole(context_, 0);
  PreparedBatch prepared;
  std::vector<float> order;
  while (FillNext(&whole, &prepared))
    order.insert(order.end(), prepared.batch.label.begin(), prepared.batch.label.end());
  scheduler_.tasks = {Task(1, 0, 10, 8)};
  TaskBatches rest(context_, 0);
  ASSERT_TRUE(FillNext(&rest, &prepared));
  EXPECT_THAT(prepared.batch.label, ElementsAre(order[8], order[9]));
  EXPECT_EQ(prepared.batch.task_end, 10u);
}

TEST_F(BatchSourceTest, DropLastCountsTheDroppedExamplesOfTasks) {
  config()->mutable_train()->set_batch_size(4);
  config()->mutable_data()->set_drop_last(true);
  scheduler_.tasks = {Task(1, 0, 10), Task(2, 0, 3)};
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  uint64_t examples = 0;
  while (FillNext(&source, &prepared)) {
    examples += prepared.batch.n;
    if (prepared.last_of_task) source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
  }
  EXPECT_EQ(examples, 8u);
  EXPECT_EQ(source.dropped(), 5u);
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_EQ(scheduler_.finished.size(), 2u);
}

TEST_F(BatchSourceTest, ResumedTasksDropTheSameExamplesAgain) {
  config()->mutable_train()->set_batch_size(4);
  config()->mutable_data()->set_drop_last(true);
  // Partly trained, trained up to what is left out, and trained wholly as far as is known.
  scheduler_.tasks = {Task(1, 0, 10, 4), Task(2, 0, 7, 4), Task(3, 0, 6, UINT64_MAX)};
  TaskBatches source(context_, 0);
  PreparedBatch prepared;
  uint64_t examples = 0;
  while (FillNext(&source, &prepared)) {
    examples += prepared.batch.n;
    if (prepared.last_of_task) source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
  }
  EXPECT_EQ(examples, 4u);
  EXPECT_EQ(source.dropped(), 2u + 3 + 2);
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_EQ(scheduler_.finished, (std::map<uint64_t, uint64_t>{{1, 8}, {2, 4}, {3, 4}}));
  uint64_t tasks = 0;
  EXPECT_EQ(context_.stats->ReportOfTasks(&tasks).dropped(), 7u);
  EXPECT_EQ(tasks, 3u);
}

TEST_F(BatchSourceTest, FillsMayRunLateAndInAnyOrder) {
  config()->mutable_train()->set_batch_size(4);
  scheduler_.tasks = {Task(1, 0, 10), Task(2, 10, 16)};
  TaskBatches source(context_, 0);
  std::vector<BatchSource::Fill> fills;
  for (;;) {
    const auto fill = source.Next();
    ASSERT_TRUE(fill.ok());
    if (!*fill) break;
    fills.push_back(*fill);
  }
  ASSERT_EQ(fills.size(), 5u);
  std::multiset<float> examples;
  for (size_t i = fills.size(); i-- > 0;) {
    PreparedBatch prepared;
    ASSERT_TRUE(fills[i](&prepared).ok());
    EXPECT_EQ(prepared.batch.task_id, i < 3 ? 1u : 2u);
    EXPECT_EQ(prepared.last_of_task, i == 2 || i == 4);
    examples.insert(prepared.batch.label.begin(), prepared.batch.label.end());
  }
  EXPECT_EQ(examples.size(), 16u);
  EXPECT_EQ(std::set<float>(examples.begin(), examples.end()).size(), 16u);
}

TEST_F(BatchSourceTest, RefusesMoreBadLinesThanAllowed) {
  config()->mutable_train()->set_batch_size(4);
  config()->mutable_data()->set_max_bad_lines(1);
  data_.bad_lines = 2;
  scheduler_.tasks = {Task(1, 0, 10)};
  TaskBatches source(context_, 0);
  const auto more = source.Next();
  EXPECT_EQ(more.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(more.status().message()), testing::HasSubstr("max_bad_lines = 1"));
}

TEST_F(BatchSourceTest, AnEarlyEndReportsWhatIsTrainedAndGivesUpTheRest) {
  FakeClock clock;
  context_.clock = &clock;
  config()->mutable_train()->set_batch_size(10);
  scheduler_.most = 100;
  TaskBatches::Pace pace;
  pace.wants = 3;
  pace.asked_at = clock.Now();
  for (uint64_t id = 1; id <= 4; ++id) scheduler_.tasks.push_back(Task(id, 10 * id, 10 * id + 10));
  TaskBatches source(context_, 0, &pace);
  PreparedBatch prepared;
  ASSERT_TRUE(FillNext(&source, &prepared));
  source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
  ASSERT_TRUE(FillNext(&source, &prepared));
  source.DropLeased();
  scheduler_.tasks.clear();
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(1, 10)));
}

// Each call is a record in the scheduler's state store.
TEST_F(BatchSourceTest, ShortTasksAreLeasedSeveralAtATime) {
  FakeClock clock;
  context_.clock = &clock;
  config()->mutable_train()->set_batch_size(10);
  scheduler_.most = 100;
  TaskBatches::Pace pace;
  const auto train_epoch = [&](uint32_t epoch, absl::Duration each) {
    for (uint64_t id = 1; id <= 16; ++id)
      scheduler_.tasks.push_back(Task(id, 10 * id, 10 * id + 10));
    scheduler_.finished.clear();
    scheduler_.answers = 0;
    TaskBatches source(context_, epoch, &pace);
    PreparedBatch prepared;
    std::vector<uint64_t> order;
    while (FillNext(&source, &prepared)) {
      order.push_back(prepared.batch.task_id);
      clock.Advance(each);
      source.TaskTrained(prepared.batch.task_id, prepared.task_examples);
    }
    EXPECT_FALSE(*source.ReportTrained());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(order.size(), 16u);
    EXPECT_EQ(scheduler_.finished.size(), 16u);
    return scheduler_.answers;
  };
  EXPECT_LE(train_epoch(0, absl::Milliseconds(10)), 6);
  EXPECT_LE(train_epoch(1, absl::Milliseconds(10)), 3);
  // Long ones are leased one by one, so that others can take what is left.
  EXPECT_LE(train_epoch(2, absl::Seconds(2)), 3);
  EXPECT_GE(train_epoch(3, absl::Seconds(2)), 16);
}

}  // namespace
}  // namespace sluice

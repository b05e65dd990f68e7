#include "worker/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/worker/fake_scheduler.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A model with an empty schema: examples are told apart by their label.
class EmptySchema : public FeatureSchema {
 public:
  const std::vector<Numeric>& numerics() const override { return numerics_; }
  const std::vector<Slot>& slots() const override { return slots_; }
  const std::vector<std::string>& columns() const override { return columns_; }
  absl::Status AppendExample(const std::string_view*, const bool*, bool, Batch*) const override {
    return absl::OkStatus();
  }

 private:
  std::vector<Numeric> numerics_;
  std::vector<Slot> slots_;
  std::vector<std::string> columns_;
};

class SchemaModel : public FakeModel {
 public:
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }

 private:
  const std::shared_ptr<const FeatureSchema> schema_ = std::make_shared<EmptySchema>();
};

// False at the end.
bool FillNext(BatchSource* source, PreparedBatch* prepared) {
  const absl::StatusOr<BatchSource::Fill> fill = source->Next();
  EXPECT_TRUE(fill.ok()) << fill.status();
  if (!fill.ok() || !*fill) return false;
  (*fill)(prepared);
  return true;
}

void AppendNumbered(uint64_t begin, uint64_t end, Batch* batch) {
  for (uint64_t i = begin; i < end; ++i) {
    ++batch->n;
    batch->label.push_back(i);
    batch->weight.push_back(1);
    batch->example_id.push_back(i);
  }
}

// "Text" whose lines are one byte long: line i is example i.
class NumberedData : public DataSource {
 public:
  absl::StatusOr<uint64_t> TextBytes(const std::string&) const override { return 1000; }
  absl::Status ReadPiece(const std::string&, uint64_t begin, uint64_t end, bool, Batch* examples,
                         BadLines* bad) const override {
    AppendNumbered(begin, end, examples);
    bad->count += bad_lines;
    return absl::OkStatus();
  }
  uint64_t bad_lines = 0;
};

class BatchSourceTest : public ::testing::Test {
 protected:
  BatchSourceTest() {
    context_.spec = &spec_;
    context_.model = &model_;
    context_.data = &data_;
    context_.scheduler = &scheduler_;
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [](const std::string&) {};
    config()->mutable_data()->set_shuffle(true);
    config()->mutable_train()->set_seed(1);
  }
  JobConfig* config() { return spec_.mutable_config(); }

  std::vector<Batch> SyncBatches(uint64_t n, uint32_t workers, uint32_t rank, uint32_t batch_size,
                                 uint64_t steps, uint32_t epoch = 0) {
    spec_.set_worker_num(workers);
    context_.rank = rank;
    config()->mutable_train()->set_batch_size(batch_size);
    Batch examples;
    examples.Reset(0, 0);
    AppendNumbered(0, n, &examples);
    ExampleSet set;
    set.Add({examples.view(), nullptr});
    PermutedBatches source(context_, &set, epoch, steps);
    std::vector<Batch> batches;
    PreparedBatch prepared;
    while (FillNext(&source, &prepared)) batches.push_back(prepared.batch);
    dropped_ = source.dropped();
    return batches;
  }

  SchemaModel model_;
  NumberedData data_;
  FakeScheduler scheduler_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  JobContext context_;
  uint64_t dropped_ = 0;
};

TEST_F(BatchSourceTest, RanksTogetherSeeTheGlobalBatchesOfOneWorkerInOrder) {
  for (const uint64_t n : {0, 1, 5, 64, 100, 103}) {
    const uint64_t steps = (n + 7) / 8;
    const std::vector<Batch> one = SyncBatches(n, 1, 0, 8, steps);
    const std::vector<Batch> left = SyncBatches(n, 2, 0, 4, steps),
                             right = SyncBatches(n, 2, 1, 4, steps);
    ASSERT_EQ(one.size(), steps);
    std::set<float> seen;
    for (size_t t = 0; t < steps; ++t) {
      std::vector<float> both = left[t].label;
      both.insert(both.end(), right[t].label.begin(), right[t].label.end());
      EXPECT_EQ(one[t].label, both);
      EXPECT_EQ(right[t].first_position, left[t].n);
      EXPECT_EQ(one[t].chunk, left[t].chunk);
      seen.insert(one[t].label.begin(), one[t].label.end());
    }
    EXPECT_EQ(seen.size(), n);
  }
}

TEST_F(BatchSourceTest, EpochsHaveDifferentOrdersAndNoShuffleKeepsTheFiles) {
  EXPECT_NE(SyncBatches(64, 1, 0, 64, 1, 0)[0].label, SyncBatches(64, 1, 0, 64, 1, 1)[0].label);
  config()->mutable_data()->set_shuffle(false);
  const std::vector<Batch> batches = SyncBatches(4, 1, 0, 4, 1);
  EXPECT_THAT(batches[0].label, ElementsAre(0, 1, 2, 3));
}

TEST_F(BatchSourceTest, DropLastLeavesTheShortGlobalBatchOutAndRankZeroCountsIt) {
  config()->mutable_data()->set_drop_last(true);
  const std::vector<Batch> batches = SyncBatches(21, 2, 0, 4, 3);
  EXPECT_EQ(batches[2].n, 0u);
  EXPECT_EQ(dropped_, 5u);
  SyncBatches(21, 2, 1, 4, 3);
  EXPECT_EQ(dropped_, 0u);
}

TEST_F(BatchSourceTest, PerRankFilesGiveEmptyBatchesToTheRankThatHasNoMore) {
  config()->mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  const std::vector<Batch> batches = SyncBatches(5, 2, 1, 4, 4);
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[0].n, 4u);
  EXPECT_EQ(batches[1].n, 1u);
  EXPECT_EQ(batches[2].n, 0u);
  EXPECT_EQ(batches[3].n, 0u);
}

DataTask Task(uint64_t id, uint64_t begin, uint64_t end, uint64_t first_offset = 0) {
  DataTask task;
  task.set_id(id);
  task.set_path("f");
  task.set_begin(begin);
  task.set_end(end);
  task.set_first_offset(first_offset);
  return task;
}

TEST_F(BatchSourceTest, TasksAreCutInBatchesAndEveryExampleComesOnce) {
  config()->mutable_train()->set_batch_size(4);
  scheduler_.tasks = {Task(1, 0, 10), Task(2, 10, 10), Task(3, 10, 14)};
  scheduler_.failures = 1;  // one lost call is asked again
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

// A schema that finds one example in what was read.
class OneExampleModel : public FakeModel {
  class Schema : public EmptySchema {
    DataSummary Summarize(const DataCounts&) const override {
      DataSummary summary;
      summary.set_examples(1);
      return summary;
    }
  };

 public:
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }

 private:
  const std::shared_ptr<const FeatureSchema> schema_ = std::make_shared<Schema>();
};

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

TEST_F(BatchSourceTest, ATaskWhoseReplyWasLostIsNotLost) {
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

TEST_F(BatchSourceTest, AReleasedTaskStartsAfterTheExamplesTrainedAlready) {
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

TEST_F(BatchSourceTest, DropLastOfTasksIsCounted) {
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
    fills[i](&prepared);
    EXPECT_EQ(prepared.batch.task_id, i < 3 ? 1u : 2u);
    EXPECT_EQ(prepared.last_of_task, i == 2 || i == 4);
    examples.insert(prepared.batch.label.begin(), prepared.batch.label.end());
  }
  EXPECT_EQ(examples.size(), 16u);
  EXPECT_EQ(std::set<float>(examples.begin(), examples.end()).size(), 16u);
}

TEST_F(BatchSourceTest, MoreBadLinesThanAllowedAreAnError) {
  config()->mutable_train()->set_batch_size(4);
  config()->mutable_data()->set_max_bad_lines(1);
  data_.bad_lines = 2;
  scheduler_.tasks = {Task(1, 0, 10)};
  TaskBatches source(context_, 0);
  const auto more = source.Next();
  EXPECT_EQ(more.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(more.status().message()), testing::HasSubstr("max_bad_lines = 1"));
}

}  // namespace
}  // namespace sluice

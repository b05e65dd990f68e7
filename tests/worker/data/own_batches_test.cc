#include "worker/data/own_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "tests/worker/fake_scheduler.h"
#include "tests/worker/numbered_data.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Has `batches` batches in each epoch; batch i is the example i.
class NumberedOwnData : public OwnData {
 public:
  uint64_t epoch_steps() const override { return steps; }
  absl::StatusOr<uint64_t> CountBatches(const JobContext&) override { return batches; }
  absl::StatusOr<std::unique_ptr<BatchSource>> Train(const JobContext&, uint32_t epoch,
                                                     uint64_t first,
                                                     const std::atomic<bool>* stopped) override {
    opened.emplace_back(epoch, first);
    return std::unique_ptr<BatchSource>(std::make_unique<Source>(*this, first, stopped));
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> Evaluate(const JobContext&) override {
    return absl::UnimplementedError("not here");
  }

  uint64_t steps = 0, batches = 5;
  uint64_t asked = 0;                                 // batches that were asked for
  std::vector<std::pair<uint32_t, uint64_t>> opened;  // epoch, first

 private:
  class Source : public BatchSource {
   public:
    Source(NumberedOwnData& data, uint64_t first, const std::atomic<bool>* stopped)
        : data_(data), next_(first), stopped_(stopped) {}
    absl::StatusOr<Fill> Next() override {
      if (*stopped_) return absl::CancelledError("stopped");
      ++data_.asked;
      if (next_ >= data_.batches) return Fill();
      return Fill([i = next_++](PreparedBatch* prepared) {
        prepared->batch.Reset(0, 0);
        AppendNumbered(i, &prepared->batch);
        return absl::OkStatus();
      });
    }
    uint64_t dropped() const override { return 0; }

   private:
    NumberedOwnData& data_;
    uint64_t next_;
    const std::atomic<bool>* const stopped_;
  };
};

class OwnBatchesTest : public ::testing::Test {
 protected:
  OwnBatchesTest() {
    context_.spec = &spec_;
    context_.model = &model_;
    context_.own_data = &data_;
    context_.scheduler = &scheduler_;
    context_.clock = Clock::Real();
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [this](const std::string& line) { log_.push_back(line); };
  }
  // The labels of the batches that are left; -1 for an empty one.
  std::vector<float> Rest(BatchSource* source) {
    std::vector<float> labels;
    PreparedBatch prepared;
    while (FillNext(source, &prepared)) {
      labels.push_back(prepared.batch.n == 0 ? -1 : prepared.batch.label[0]);
      positions_.emplace_back(prepared.batch.task_id, prepared.batch.task_end);
      EXPECT_FALSE(prepared.last_of_task);
    }
    return labels;
  }
  static DataTask Task(uint64_t id, uint64_t first_offset) {
    DataTask task;
    task.set_id(id);
    task.set_first_offset(first_offset);
    return task;
  }

  SchemaModel model_;
  NumberedOwnData data_;
  FakeScheduler scheduler_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  JobContext context_;
  std::vector<std::string> log_;
  std::vector<std::pair<uint64_t, uint64_t>> positions_;
};

TEST_F(OwnBatchesTest, SyncTakesOneBatchAStepAndLeavesTheRestAlone) {
  OwnSteps source(context_, 2, 3);
  EXPECT_THAT(Rest(&source), ElementsAre(0, 1, 2));
  EXPECT_THAT(data_.opened, ElementsAre(Pair(2, 0)));
  EXPECT_EQ(data_.asked, 3u);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(OwnBatchesTest, SyncContinuesBehindTheStepsThatAreDone) {
  OwnSteps source(context_, 0, 5, 3);
  EXPECT_THAT(Rest(&source), ElementsAre(3, 4));
  EXPECT_THAT(data_.opened, ElementsAre(Pair(0, 3)));
  // Nothing is left, so the program is not asked.
  OwnSteps done(context_, 0, 5, 5);
  EXPECT_THAT(Rest(&done), IsEmpty());
  EXPECT_EQ(data_.opened.size(), 1u);
}

TEST_F(OwnBatchesTest, SyncMakesEmptyStepsWhenTheSourceEndsEarly) {
  OwnSteps source(context_, 0, 7);
  EXPECT_THAT(Rest(&source), ElementsAre(0, 1, 2, 3, 4, -1, -1));
  EXPECT_EQ(data_.asked, 6u);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], testing::HasSubstr("5 of 7"));
}

TEST_F(OwnBatchesTest, AsyncCountsBatchesFromTheTasksFirstOffsetOn) {
  scheduler_.tasks = {Task(3, 2)};
  OwnTasks source(context_, 1);
  EXPECT_THAT(Rest(&source), ElementsAre(2, 3, 4));
  EXPECT_THAT(data_.opened, ElementsAre(Pair(1, 2)));
  EXPECT_THAT(positions_, ElementsAre(Pair(3, 3), Pair(3, 4), Pair(3, 5)));
  // Only when the trainer has waited for its pushes is the task reported.
  EXPECT_THAT(scheduler_.finished, IsEmpty());
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(3, 5)));
}

TEST_F(OwnBatchesTest, AsyncEndsTheTaskAfterEpochSteps) {
  data_.steps = 4;
  scheduler_.tasks = {Task(1, 0)};
  OwnTasks source(context_, 0);
  EXPECT_THAT(Rest(&source), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(data_.asked, 4u);
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(1, 4)));
}

TEST_F(OwnBatchesTest, AsyncTrainsATaskThatComesWithTheLastReport) {
  scheduler_.tasks = {Task(1, 0)};
  OwnTasks source(context_, 0);
  EXPECT_EQ(Rest(&source).size(), 5u);
  scheduler_.tasks = {Task(2, 3)};
  EXPECT_TRUE(*source.ReportTrained());
  EXPECT_THAT(Rest(&source), ElementsAre(3, 4));
  EXPECT_FALSE(*source.ReportTrained());
  EXPECT_THAT(scheduler_.finished, ElementsAre(Pair(1, 5), Pair(2, 5)));
}

TEST_F(OwnBatchesTest, CancelEndsTheSource) {
  OwnSteps source(context_, 0, 5);
  ASSERT_TRUE(source.Next().ok());
  source.Cancel();
  EXPECT_EQ(source.Next().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice

#include "worker/context/worker_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/worker/fakes.h"
#include "worker/batches/batch_queue.h"

namespace sluice {
namespace {

TEST(WorkerStatsTest, LogsEveryLogEveryStepsAndHandsOverLossesOnce) {
  std::vector<std::string> lines;
  WorkerStats stats("job", 3, 2, [&lines](const std::string& line) { lines.push_back(line); });
  stats.BeginEpoch(1);
  for (int i = 0; i < 5; ++i) stats.AddStep(10, 5.0 * (i + 1), 10);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], testing::HasSubstr("rank 3 epoch 2 step 2 loss 0.75000"));
  const WorkerProgress progress = stats.TakeProgress();
  EXPECT_EQ(progress.epoch(), 2u);
  ASSERT_EQ(progress.losses_size(), 2);
  EXPECT_EQ(progress.losses(1).epoch(), 2u);
  EXPECT_EQ(progress.losses(1).step(), 4u);
  EXPECT_DOUBLE_EQ(progress.losses(1).loss(), 1.75);
  EXPECT_EQ(stats.TakeProgress().losses_size(), 0);
  EXPECT_EQ(stats.EpochReport().examples(), 50u);
  EXPECT_EQ(stats.EpochReport().steps(), 5u);
}

TEST(WorkerStatsTest, LoggedValuesAreMeansOverTheStepsOfTheirLoss) {
  WorkerStats stats("job", 0, /*log_every=*/2, nullptr);
  stats.BeginEpoch(0);
  const auto step = [&](const std::vector<LoggedValue>& logged) {
    stats.AddLogged(logged);
    stats.AddStep(1, 1, 1);
  };
  step({{"norm", 1}, {"rate", 8}});
  step({{"norm", 4}});
  step({});
  step({{"norm", 3}});
  step({{"norm", 100}});
  stats.BeginEpoch(1);
  std::vector<LoggedValue> many;
  for (size_t i = 0; i <= WorkerStats::kMaxLogged; ++i) many.push_back({absl::StrCat("v", i), 1});
  step(many);
  step({});
  const WorkerProgress progress = stats.TakeProgress();
  ASSERT_EQ(progress.losses_size(), 3);
  ASSERT_EQ(progress.losses(0).user_size(), 2);
  EXPECT_EQ(progress.losses(0).user(0).name(), "norm");
  EXPECT_EQ(progress.losses(0).user(0).value(), 2.5);
  EXPECT_EQ(progress.losses(0).user(1).value(), 8);
  ASSERT_EQ(progress.losses(1).user_size(), 1);
  EXPECT_EQ(progress.losses(1).user(0).value(), 3);
  EXPECT_EQ(progress.losses(2).user_size(), static_cast<int>(WorkerStats::kMaxLogged));
}

TEST(WorkerStatsTest, ADroppedStepLeavesTheSumsOfARunWithoutIt) {
  WorkerStats stats("job", 0, 100, nullptr), without("job", 0, 100, nullptr);
  for (WorkerStats* one : {&stats, &without}) {
    one->BeginEpoch(0);
    for (int i = 0; i < 3; ++i) one->AddStep(10, 0.1 * (i + 1), 0.7);
  }
  stats.AddStep(20, 0.3, 1.1);
  stats.DropStep();
  EXPECT_EQ(stats.EpochReport().SerializeAsString(), without.EpochReport().SerializeAsString());
  EXPECT_EQ(stats.Examples(), 30u);
  EXPECT_EQ(stats.EpochSteps(), 3u);
  EXPECT_EQ(stats.Progress().step(), 3u);
  EXPECT_EQ(stats.Progress().examples(), 30u);
}

TEST(WorkerStatsTest, ResumedEpochContinuesFromItsCheckpoint) {
  const auto bad = [](uint64_t count) {
    BadLines lines;
    lines.count = count;
    lines.first = {"f:1: reason"};
    return lines;
  };
  DataSummary one;
  one.set_examples(1);
  WorkerStats whole("job", 0, 100, nullptr);
  whole.BeginEpoch(0);
  whole.AddBadLines(bad(2), /*done_after=*/1);
  whole.AddSummary(one, 1);
  whole.AddBadLines(bad(4), 3);
  whole.AddSummary(one, 3);
  for (int i = 0; i < 2; ++i) whole.AddStep(10, 1.5, 10);
  whole.AddTime(Stage::kCompute, {}, WorkerStats::Time() + std::chrono::seconds(3));
  const TrainReport so_far = whole.ReportAfter(2);
  EXPECT_EQ(so_far.bad_lines(), 2u) << "data read ahead will be read again";
  EXPECT_EQ(so_far.summary().examples(), 1u);
  EXPECT_EQ(whole.EpochReport().bad_lines(), 6u);
  EXPECT_EQ(whole.EpochReport().summary().examples(), 2u);

  WorkerStats resumed("job", 0, 100, nullptr);
  resumed.BeginEpoch(0);
  resumed.StartFrom(so_far, 2, /*steps_before=*/0);
  EXPECT_EQ(resumed.bad_lines(), 2u);
  EXPECT_EQ(resumed.Progress().step(), 2u);
  EXPECT_EQ(resumed.Progress().examples(), 20u);
  resumed.AddBadLines(bad(4), 3);
  resumed.AddSummary(one, 3);
  for (WorkerStats* stats : {&whole, &resumed}) {
    stats->AddStep(10, 1.25, 10);
    const TrainReport report = stats->EpochReport();
    EXPECT_EQ(report.steps(), 3u);
    EXPECT_EQ(report.examples(), 30u);
    EXPECT_EQ(report.loss_sum(), 4.25);
    EXPECT_EQ(report.weight_sum(), 30);
    EXPECT_EQ(report.bad_lines(), 6u);
    EXPECT_EQ(report.first_bad_lines_size(), 1);
    EXPECT_EQ(report.summary().examples(), 2u);
    EXPECT_DOUBLE_EQ(report.stages().compute(), 3);
    EXPECT_EQ(stats->ReportAfter(3).ShortDebugString(), report.ShortDebugString());
  }
  EXPECT_EQ(resumed.Examples(), 10u) << "only what this process trained";

  WorkerStats later("job", 0, 100, nullptr);
  later.BeginEpoch(4);
  EXPECT_FALSE(later.summarizes()) << "the first epoch is over";
  later.StartFrom(TrainReport(), 2, /*steps_before=*/40);
  EXPECT_EQ(later.Progress().step(), 42u);
  EXPECT_FALSE(later.EpochReport().has_summary());
}

TEST(WorkerStatsTest, StagesAndStepsBecomeSpans) {
  TraceRecorder trace("job", Clock::Real());
  WorkerStats stats("job", 0, 100, nullptr, &trace);
  stats.BeginEpoch(0);
  {
    StepTimer step(&stats);
    { const StageTimer pull(&stats, Stage::kPullWait); }
    {
      const StageTimer compute(&stats, Stage::kCompute);
      stats.AddStep(10, 5, 10);
    }
    const StageTimer read(&stats, Stage::kRead);
  }
  google::protobuf::RepeatedPtrField<TraceBatch> batches;
  trace.Take(&batches);
  ASSERT_EQ(batches.size(), 1);
  const TraceBatch& batch = batches[0];
  ASSERT_EQ(batch.name_size(), 4);
  EXPECT_EQ(batch.name(0), TraceBatch::PULL_WAIT);
  EXPECT_EQ(batch.name(1), TraceBatch::COMPUTE);
  EXPECT_EQ(batch.name(2), TraceBatch::READ);
  EXPECT_EQ(batch.name(3), TraceBatch::STEP);
  EXPECT_EQ(batch.step(0), 1);
  EXPECT_EQ(batch.step(1), 0);   // the same
  EXPECT_EQ(batch.step(2), -1);  // none
  EXPECT_EQ(batch.step(3), 1);
  EXPECT_EQ(batch.tracks(batch.track(2)), "reading");
  EXPECT_EQ(batch.tracks(batch.track(3)), "training");
}

TEST(WorkerStatsTest, NextReportHasTheLossesOfALostOneWithinABound) {
  WorkerStats stats("job", 0, 2, nullptr);
  for (int i = 0; i < 4; ++i) stats.AddStep(1, 1, 1);
  const WorkerProgress lost = stats.TakeProgress();
  for (int i = 0; i < 2; ++i) stats.AddStep(1, 1, 1);
  stats.GiveBack(lost);
  const WorkerProgress all = stats.TakeProgress();
  ASSERT_EQ(all.losses_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(all.losses(i).step(), 2u * (i + 1));
  const int most = WorkerStats::kMaxLosses;
  for (int i = 0; i < 2 * most; ++i) stats.AddStep(1, 1, 1);
  stats.GiveBack(all);
  const WorkerProgress newest = stats.TakeProgress();
  ASSERT_EQ(newest.losses_size(), most);
  EXPECT_EQ(newest.losses(most - 1).step(), 6u + 2 * most);
}

TEST(WorkerStatsTest, ProgressReportsHowFullTheQueueIs) {
  WorkerStats stats("job", 0, 1000, nullptr);
  BatchQueue queue(4);
  EXPECT_EQ(stats.Progress().batches_capacity(), 0);
  stats.WatchQueue(&queue);
  queue.Push(std::make_shared<PreparedBatch>());
  queue.Push(std::make_shared<PreparedBatch>());
  EXPECT_EQ(stats.Progress().batches_ready(), 2);
  EXPECT_EQ(stats.TakeProgress().batches_capacity(), 4);
  queue.TryPop();
  EXPECT_EQ(stats.Progress().batches_ready(), 1);
  stats.WatchQueue(nullptr);
  EXPECT_EQ(stats.Progress().batches_capacity(), 0);
}

TEST(WorkerStatsTest, LosingRoomForTheNextBatchIsLoggedOnce) {
  OnesNet net;
  std::vector<std::string> lines;
  WorkerStats stats("job", 0, /*log_every=*/100,
                    [&](const std::string& line) { lines.push_back(line); });
  stats.AddStep(1, 0, 1);  // no network yet
  stats.WatchNet(&net);
  net.device.bytes_limit = 100;
  stats.AddStep(1, 0, 1);
  EXPECT_THAT(lines, testing::IsEmpty());
  EXPECT_FALSE(stats.Progress().device().no_room_ahead());
  net.device.no_room_ahead = true;
  for (int i = 0; i < 3; ++i) stats.AddStep(1, 0, 1);
  EXPECT_THAT(lines, testing::ElementsAre(testing::AllOf(testing::HasSubstr("device memory"),
                                                         testing::HasSubstr("train.batch_size "))));
  EXPECT_TRUE(stats.Progress().device().no_room_ahead());
}

TEST(WorkerStatsTest, LogHasTheFirstHundredLinesOfStepsAndReportsHaveAll) {
  int lines = 0;
  WorkerStats stats("job", 0, /*log_every=*/2, [&](const std::string&) { ++lines; });
  stats.BeginEpoch(0);
  // Far less than the 10 seconds after which the next line comes.
  for (int step = 0; step < 500; ++step) stats.AddStep(1, 0.5, 1);
  EXPECT_EQ(lines, 100);
  EXPECT_EQ(stats.TakeProgress().losses_size(), 250);
}

TEST(WorkerStatsTest, LossesAreUnreportedUntilTheNextReportIsMade) {
  WorkerStats stats("job", 0, /*log_every=*/1, nullptr);
  stats.BeginEpoch(0);
  stats.AddStep(1, 0.5, 1);
  const WorkerProgress first = stats.TakeProgress();
  stats.AddStep(1, 0.5, 1);
  EXPECT_EQ(stats.UnreportedLosses().size(), 2) << "the report of step 1 may be on its way";
  stats.GiveBack(first);
  EXPECT_EQ(stats.UnreportedLosses().size(), 2);
  stats.TakeProgress();
  stats.TakeProgress();
  EXPECT_EQ(stats.UnreportedLosses().size(), 0);
}

TEST(WorkerStatsTest, ProgressReportsTheUseOfTheDevice) {
  OnesNet net;
  WorkerStats stats("job", 0, /*log_every=*/1, nullptr);
  stats.WatchNet(&net);
  EXPECT_FALSE(stats.Progress().has_device());  // the CPU
  net.device.bytes_limit = 100;
  net.device.bytes_in_use = 70;
  net.device.busy_seconds = 5;
  net.device.steps_ahead = 9;
  const auto start = std::chrono::steady_clock::now();
  stats.BeginEpoch(0);
  net.device.busy_seconds = 1005;
  stats.AddStep(1, 0, 1);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const DeviceUse use = stats.Progress().device();
  EXPECT_EQ(use.bytes_in_use(), 70u);
  EXPECT_EQ(use.bytes_limit(), 100u);
  EXPECT_EQ(use.busy_seconds(), 1005);
  EXPECT_EQ(use.steps_ahead(), 9u);
  // The device claims 1000 busy seconds within less than `wall`.
  EXPECT_GE(use.busy_share(), 1000 / wall);
  EXPECT_TRUE(std::isfinite(use.busy_share()));
}

TEST(WorkerStatsTest, StepsWithoutWeightLeaveTheLossAsItWas) {
  WorkerStats stats("job", 0, /*log_every=*/1, nullptr);
  stats.BeginEpoch(0);
  stats.AddStep(4, 2, 4);
  stats.AddStep(0, 0, 0);
  const WorkerProgress progress = stats.TakeProgress();
  ASSERT_EQ(progress.losses_size(), 2);
  EXPECT_DOUBLE_EQ(progress.losses(1).loss(), 0.5);
  EXPECT_EQ(progress.step(), 2u);
  EXPECT_EQ(stats.EpochReport().steps(), 2u);
}

TEST(WorkerStatsTest, ANewEpochBeginsItsCountsAnewAndKeepsThoseOfTheJob) {
  WorkerStats stats("job", 0, 100, nullptr);
  stats.BeginEpoch(0);
  BadLines bad;
  bad.count = 3;
  stats.AddBadLines(bad);
  stats.AddStep(10, 1, 10);
  stats.AddSkippedStep();
  stats.AddTime(Stage::kRead, {}, WorkerStats::Time() + std::chrono::seconds(2));
  EXPECT_EQ(stats.Totals().examples(), 10u);
  stats.BeginEpoch(1);
  EXPECT_EQ(stats.Totals().examples(), 0u);
  EXPECT_EQ(stats.Totals().steps(), 0u);
  EXPECT_EQ(stats.bad_lines(), 0u);
  EXPECT_EQ(stats.ReportAfter(0).bad_lines(), 0u);
  const WorkerProgress progress = stats.Progress();
  EXPECT_EQ(progress.epoch(), 2u);
  EXPECT_EQ(progress.examples(), 0u);
  EXPECT_EQ(progress.step(), 1u);
  EXPECT_DOUBLE_EQ(progress.stages().read(), 2);
  EXPECT_EQ(stats.Examples(), 10u);
  EXPECT_EQ(stats.skipped_steps(), 1u);
}

TEST(WorkerStatsTest, OnlyTheDataOfTheFirstEpochIsSummarized) {
  DataSummary one;
  one.set_examples(1);
  WorkerStats stats("job", 0, 100, nullptr);
  stats.AddSummary(one);  // read before the epoch begins
  EXPECT_TRUE(stats.summarizes());
  stats.BeginEpoch(0);
  stats.AddSummary(one, /*done_after=*/1);
  EXPECT_EQ(stats.EpochReport().summary().examples(), 2u);
  EXPECT_EQ(stats.ReportAfter(0).summary().examples(), 1u);
  EXPECT_EQ(stats.ReportAfter(1).summary().examples(), 2u);
  stats.BeginEpoch(1);
  EXPECT_FALSE(stats.summarizes());
  EXPECT_FALSE(stats.EpochReport().has_summary());
  EXPECT_FALSE(stats.ReportAfter(0).has_summary());
}

TEST(WorkerStatsTest, ACheckpointHasTheCountsOfEachAcknowledgedTaskOnce) {
  WorkerStats stats("job", 0, 100, nullptr);
  stats.BeginEpoch(0);
  for (const uint64_t task : {4, 5}) {
    WorkerStats::TaskData data;
    data.bad.count = task;
    data.summary.set_examples(10 * task);
    data.dropped = 1;
    stats.AddTask(task, data);
  }
  uint64_t tasks = 7;
  EXPECT_EQ(stats.ReportOfTasks(&tasks).bad_lines(), 0u);
  EXPECT_EQ(tasks, 0u);
  // The second call repeats the first, and the third names a task that nobody added.
  for (const uint64_t task : {5, 5, 6}) stats.TaskAcknowledged(task);
  const TrainReport report = stats.ReportOfTasks(&tasks);
  EXPECT_EQ(tasks, 1u);
  EXPECT_EQ(report.bad_lines(), 5u);
  EXPECT_EQ(report.summary().examples(), 50u);
  EXPECT_EQ(report.dropped(), 1u);
  EXPECT_EQ(stats.EpochReport().bad_lines(), 9u) << "all that was read";
  EXPECT_EQ(stats.EpochReport().summary().examples(), 90u);
  stats.BeginEpoch(1);
  stats.TaskAcknowledged(4);  // of the epoch before
  EXPECT_EQ(stats.ReportOfTasks(&tasks).bad_lines(), 0u);
  EXPECT_EQ(tasks, 0u);
}

TEST(WorkerStatsTest, TheUseOfHotRowsAddsUpInProgressAndReport) {
  WorkerStats stats("job", 0, 100, nullptr);
  stats.BeginEpoch(0);
  EXPECT_FALSE(stats.Progress().has_hot_rows());
  stats.AddHotRows(HotRowUse());
  EXPECT_TRUE(stats.Progress().has_hot_rows()) << "zeros announce the cache";
  for (const uint64_t n : {5, 3}) {
    HotRowUse use;
    use.set_hits(n);
    use.set_staleness_max(n);
    stats.AddHotRows(use);
  }
  EXPECT_EQ(stats.Progress().hot_rows().hits(), 8u);
  EXPECT_EQ(stats.Progress().hot_rows().staleness_max(), 5u);
  EXPECT_EQ(stats.EpochReport().hot_rows().hits(), 8u);
  stats.BeginEpoch(1);
  EXPECT_EQ(stats.Progress().hot_rows().hits(), 8u) << "of all epochs";
  EXPECT_EQ(stats.EpochReport().hot_rows().hits(), 0u);
}

}  // namespace
}  // namespace sluice

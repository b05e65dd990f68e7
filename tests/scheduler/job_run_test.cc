#include "scheduler/job_run.h"

#include <gmock/gmock.h>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

const absl::Time kStart = absl::UnixEpoch();

PhaseReport Files(const std::string& path, uint64_t bytes) {
  PhaseReport report = Ended(1);
  DataFile* file = report.mutable_index()->add_files();
  file->set_path(path);
  file->set_bytes(bytes);
  return report;
}

TEST(JobRunTest, SyncWithOwnFilesTakesTheLargestRank) {
  JobConfig config = FakeCluster::Config(-1, 2);
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  JobRun run(&config, 2, kStart);
  ASSERT_TRUE(run.TakeReport(0, Indexed(10), kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, Indexed(101), kStart));
  EXPECT_EQ(run.phases().current().global_steps(), 11u);
  EXPECT_EQ(run.examples_expected(), 111u);
}

TEST(JobRunTest, SyncSendsAllPiecesWithTheFirstEpochOnly) {
  JobConfig config = FakeCluster::Config(-1, 2, 2);
  config.clear_data();
  JobRun run(&config, 2, kStart);
  ASSERT_TRUE(run.TakeReport(1, Indexed(30, 1), kStart).ok());
  ASSERT_TRUE(*run.TakeReport(0, Indexed(15, 0), kStart));
  const DataPieces& pieces = run.phases().current().pieces();
  EXPECT_THAT(pieces.begin(), testing::ElementsAre(0, 1000));
  EXPECT_THAT(pieces.end(), testing::ElementsAre(1000, 2000));
  EXPECT_THAT(pieces.examples(), testing::ElementsAre(15, 30));
  EXPECT_EQ(run.phases().current().global_steps(), 3u);
  EXPECT_EQ(run.examples_expected(), 45u);
  ASSERT_TRUE(run.TakeReport(0, Trained(2, 15), kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, Trained(2, 29), kStart));
  EXPECT_EQ(run.phases().current().epoch(), 1u);
  EXPECT_EQ(run.phases().current().global_steps(), 3u);
  EXPECT_FALSE(run.phases().current().has_pieces());
  EXPECT_EQ(run.examples_expected(), 44u);  // one line was malformed
}

TEST(JobRunTest, FilesOfARankStayWithIt) {
  JobConfig config = FakeCluster::Config(0, 2);
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  JobRun run(&config, 2, kStart);
  ASSERT_TRUE(run.TakeReport(0, Files("a", 10), kStart).ok());
  ASSERT_TRUE(run.TakeReport(1, Files("b", 100), kStart).ok());
  NextTaskRequest ask;
  ask.set_rank(0);
  EXPECT_EQ(run.NextTask(ask)->task().path(), "a");
  EXPECT_EQ(run.NextTask(ask)->kind(), NextTaskReply::EPOCH_DONE);
}

PhaseReport Seen(const std::string& host, uint64_t bytes) {
  PhaseReport report = Files("a", 10);
  report.mutable_index()->set_host(host);
  SeenFile* seen = report.mutable_index()->add_train_seen();
  seen->set_path("/d/a");
  seen->set_bytes(bytes);
  return report;
}

TEST(JobRunTest, HostsThatSeeDifferentFilesFailTheJobInEveryMode) {
  for (const int k_steps : {-1, 0, 5}) {
    for (const auto assignment : {DataConfig::GLOBAL, DataConfig::PER_RANK_FILES}) {
      JobConfig config = FakeCluster::Config(k_steps, 2);
      config.mutable_data()->set_assignment(assignment);
      JobRun run(&config, 2, kStart);
      ASSERT_TRUE(run.TakeReport(1, Seen("left", 10), kStart).ok());
      EXPECT_TRUE(run.failure().ok());
      ASSERT_FALSE(*run.TakeReport(0, Seen("right", 11), kStart));
      EXPECT_TRUE(absl::IsFailedPrecondition(run.failure()));
      EXPECT_THAT(std::string(run.failure().message()),
                  testing::AllOf(testing::HasSubstr("/d/a"), testing::HasSubstr("left"),
                                 testing::HasSubstr("right")));
    }
  }
}

TEST(JobRunTest, EvaluateOnlyComparesFilesToo) {
  JobConfig config = FakeCluster::Config(0, 2);
  config.set_evaluate_only(true);
  JobRun run(&config, 2, kStart);
  PhaseReport report = Ended(1);
  report.mutable_index()->add_eval_seen()->set_path("e");
  ASSERT_TRUE(run.TakeReport(0, report, kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, report, kStart));
  EXPECT_EQ(run.phases().current().kind(), Phase::EVAL);
  JobRun other(&config, 2, kStart);
  ASSERT_TRUE(other.TakeReport(0, report, kStart).ok());
  ASSERT_TRUE(other.TakeReport(1, Ended(1), kStart).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(other.failure()));
}

std::vector<std::string> Tags(const std::vector<Scalar>& scalars) {
  std::vector<std::string> tags;
  for (const Scalar& scalar : scalars) tags.push_back(scalar.tag);
  return tags;
}

TEST(JobRunTest, UndefinedMetricsAddNoPointToTheCurve) {
  JobConfig config = FakeCluster::Config(0, 1);
  config.set_evaluate_only(true);
  EvalAccumulator both, one, none;
  for (EvalAccumulator* sums : {&both, &one}) sums->Add(1.0f, 1.0f, 1.0f);
  both.Add(-1.0f, 0.0f, 1.0f);
  const std::vector<std::pair<EvalAccumulator*, std::vector<std::string>>> cases = {
      {&both, {"eval/auc", "eval/log_loss", "eval/accuracy", "eval/mae", "eval/rmse"}},
      {&one, {"eval/log_loss", "eval/accuracy", "eval/mae", "eval/rmse"}},
      {&none, {}}};
  for (const auto& [sums, tags] : cases) {
    JobRun run(&config, 1, kStart);
    ASSERT_TRUE(run.TakeReport(0, Ended(1), kStart).ok());
    PhaseReport report = Ended(2);
    *report.mutable_eval() = sums->ToProto();
    ASSERT_TRUE(run.TakeReport(0, report, kStart).ok());
    EXPECT_EQ(Tags(run.TakeScalars()), tags);
  }
}

TEST(JobRunTest, EmptyDataFails) {
  JobConfig config = FakeCluster::Config(0, 1);
  JobRun run(&config, 1, kStart);
  ASSERT_TRUE(run.TakeReport(0, Files("a", 0), kStart).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(run.failure()));
}

TEST(JobRunTest, EpochWithUntrainedTasksFails) {
  JobConfig config = FakeCluster::Config(0, 1);
  JobRun run(&config, 1, kStart);
  ASSERT_TRUE(run.TakeReport(0, Files("a", 10), kStart).ok());
  ASSERT_TRUE(run.TakeReport(0, Trained(2, 5), kStart).ok());
  EXPECT_THAT(std::string(run.failure().message()), testing::HasSubstr("were not trained"));
}

TEST(JobRunTest, EpochThatTrainsNothingFailsAndSaysWhy) {
  JobConfig config = FakeCluster::Config(0, 1);
  for (const uint64_t dropped : {0, 3}) {
    JobRun run(&config, 1, kStart);
    ASSERT_TRUE(run.TakeReport(0, Files("a", 10), kStart).ok());
    NextTaskRequest ask;
    ask.set_finished_task(run.NextTask(ask)->task().id());
    ASSERT_TRUE(run.NextTask(ask).ok());
    PhaseReport trained = Trained(2, 0);
    trained.mutable_train()->set_dropped(dropped);
    ASSERT_TRUE(run.TakeReport(0, trained, kStart).ok());
    EXPECT_THAT(std::string(run.failure().message()),
                testing::HasSubstr(dropped == 0 ? "has no examples" : "data.drop_last"));
  }
}

TEST(JobRunTest, AnEpochOfOnlyBadLinesNamesTheFirst) {
  JobConfig config = FakeCluster::Config(0, 1);
  config.mutable_data()->set_max_bad_lines(10);
  JobRun async(&config, 1, kStart);
  ASSERT_TRUE(async.TakeReport(0, Files("a", 10), kStart).ok());
  NextTaskRequest ask;
  ask.set_finished_task(async.NextTask(ask)->task().id());
  ASSERT_TRUE(async.NextTask(ask).ok());
  PhaseReport trained = Trained(2, 0);
  trained.mutable_train()->set_bad_lines(2);
  trained.mutable_train()->add_first_bad_lines("a:1: no label");
  ASSERT_TRUE(async.TakeReport(0, trained, kStart).ok());
  EXPECT_THAT(
      std::string(async.failure().message()),
      testing::HasSubstr("no examples, only 2 malformed lines, the first 1: a:1: no label"));

  config.mutable_strategy()->set_a_sync(false);
  JobRun sync(&config, 1, kStart);
  ASSERT_TRUE(sync.TakeReport(0, Indexed(2, 0, 1), kStart).ok());
  ASSERT_TRUE(sync.TakeReport(0, trained, kStart).ok());
  EXPECT_THAT(
      std::string(sync.failure().message()),
      testing::HasSubstr("no examples, only 2 malformed lines, the first 1: a:1: no label"));

  JobRun none(&config, 1, kStart);
  ASSERT_TRUE(none.TakeReport(0, Indexed(0, 0, 1), kStart).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(none.failure()));
  EXPECT_THAT(std::string(none.failure().message()), testing::HasSubstr("data.train_files"));
}

TEST(JobRunTest, TooManyBadLinesOfAllRanksFailAfterTheFirstEpoch) {
  JobConfig config = FakeCluster::Config(0, 1);
  config.mutable_data()->set_max_bad_lines(1);
  JobRun async(&config, 1, kStart);
  ASSERT_TRUE(async.TakeReport(0, Files("a", 10), kStart).ok());
  NextTaskRequest ask;
  ask.set_finished_task(async.NextTask(ask)->task().id());
  ASSERT_TRUE(async.NextTask(ask).ok());
  PhaseReport trained = Trained(2, 5);
  trained.mutable_train()->set_bad_lines(2);
  ASSERT_TRUE(async.TakeReport(0, trained, kStart).ok());
  EXPECT_THAT(std::string(async.failure().message()), testing::HasSubstr("2 malformed lines"));

  config.mutable_strategy()->set_a_sync(false);
  JobRun sync(&config, 2, kStart);
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(sync.TakeReport(rank, Indexed(10, rank), kStart).ok());
  trained.mutable_train()->set_bad_lines(1);
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(sync.TakeReport(rank, trained, kStart).ok());
  EXPECT_EQ(sync.result().bad_lines(), 2u);  // each rank met one
  EXPECT_FALSE(sync.failure().ok());
}

TEST(JobRunTest, TasksAreLeasedOnlyWhileTheEpochIsTrained) {
  JobConfig config = FakeCluster::Config(0, 1);
  JobRun run(&config, 1, kStart);
  NextTaskRequest ask;
  EXPECT_TRUE(absl::IsFailedPrecondition(run.NextTask(ask).status()));
  ASSERT_TRUE(run.TakeReport(0, Files("a", 10), kStart).ok());
  ask.set_epoch(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(run.NextTask(ask).status()));
}

}  // namespace
}  // namespace sluice

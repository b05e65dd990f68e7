#include "scheduler/job/job_run.h"

#include <gmock/gmock.h>

#include <optional>

#include "common/saved_model/checkpoint.h"
#include "scheduler/job/sync_index.h"
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
  const DataPieces pieces = run.PhaseOf(0).pieces();
  EXPECT_THAT(pieces.begin(), testing::ElementsAre(0, 1000));
  EXPECT_THAT(pieces.end(), testing::ElementsAre(1000, 2000));
  EXPECT_THAT(pieces.examples(), testing::ElementsAre(15, 30));
  EXPECT_EQ(run.phases().current().global_steps(), 3u);
  EXPECT_EQ(run.examples_expected(), 45u);
  ASSERT_TRUE(run.TakeReport(0, Trained(2, 15), kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, Trained(2, 29), kStart));
  EXPECT_EQ(run.phases().current().epoch(), 1u);
  EXPECT_EQ(run.phases().current().global_steps(), 3u);
  EXPECT_FALSE(run.PhaseOf(0).has_pieces());
  EXPECT_FALSE(run.PhaseOf(1).has_pieces());
  EXPECT_EQ(run.examples_expected(), 44u);  // one line was malformed
}

TEST(JobRunTest, ARestoredRankThatDoesThePhaseHasReportedItsData) {
  for (const int k_steps : {-1, 0}) {
    JobConfig config = FakeCluster::Config(k_steps, 2, 2);
    config.mutable_data()->clear_eval_files();
    std::optional<JobRun> run;
    const auto index = [&] {
      run.emplace(&config, 2, kStart);
      PhaseReport first = Indexed(50, 0);
      if (k_steps == 0) *first.mutable_index()->add_files() = Files("a", 10).index().files(0);
      ASSERT_TRUE(run->TakeReport(0, first, kStart).ok());
      ASSERT_TRUE(*run->TakeReport(1, Indexed(50, 1), kStart));
    };
    index();
    RunState saved = run->Save();
    saved.mutable_lives(1)->set_unseen(true);
    index();
    ASSERT_TRUE(run->Restore(2, saved, true, kStart).ok());
    EXPECT_FALSE(run->PhaseReady(1));
    NextTaskRequest ask;
    ask.set_rank(1);
    ask.set_number(1);
    if (k_steps == 0) {
      ASSERT_TRUE(run->NextTask(ask).ok());
    } else {
      ASSERT_TRUE(run->TakeReport(1, Trained(2, 50), kStart).ok());
      ASSERT_TRUE(*run->TakeReport(0, Trained(2, 50), kStart));
    }
    EXPECT_TRUE(run->PhaseReady(1));
  }
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

JobConfig Sourced(int k_steps) {
  JobConfig config = FakeCluster::Config(k_steps, 2);
  config.clear_data();
  config.clear_eval();
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  config.mutable_model()->mutable_program();
  return config;
}

TEST(JobRunTest, ASourceIsATaskOfItsRankThatCountsBatches) {
  const JobConfig config = Sourced(0);
  JobRun run(&config, 2, kStart);
  ASSERT_TRUE(run.TakeReport(0, Ended(1), kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, Ended(1), kStart));
  NextTaskRequest ask;
  for (const uint32_t rank : {1, 0}) {
    ask.set_rank(rank);
    ask.set_number(1);
    EXPECT_EQ(run.NextTask(ask)->task().id(), rank + 1);
    ask.set_number(2);
    EXPECT_EQ(run.NextTask(ask)->kind(), NextTaskReply::EPOCH_DONE);
  }
  HeldOfRank held;
  held.least.set_incarnation(7);
  held.least.set_task_id(2);
  held.least.set_task_end(30);
  held.least.mutable_totals()->set_examples(300);
  uint64_t replayed = 0;
  ASSERT_TRUE(run.Rejoin(1, 7, held, &replayed).ok());
  ask.set_rank(1);
  ask.set_number(1);
  const auto again = run.NextTask(ask);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->task().id(), 2u);
  EXPECT_EQ(again->task().first_offset(), 30u);
}

TEST(JobRunTest, SyncWithSourcesTakesTheStepsThatAllReport) {
  const JobConfig config = Sourced(-1);
  for (const uint64_t other : {12, 11}) {
    JobRun run(&config, 2, kStart);
    ASSERT_TRUE(run.TakeReport(0, Indexed(12), kStart).ok());
    EXPECT_EQ(*run.TakeReport(1, Indexed(other), kStart), other == 12);
    if (other == 12) {
      EXPECT_EQ(run.phases().current().global_steps(), 12u);
      EXPECT_EQ(run.examples_expected(), 0u) << "nobody knows how large the batches are";
    } else {
      EXPECT_TRUE(absl::IsFailedPrecondition(run.failure()));
    }
  }
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

// One rank in sync. Leads the run until it is over, through evaluations with these shares of wrong
// scores. Returns the phases after INDEX.
std::string LeadThrough(const std::vector<double>& wrong, JobRun* run) {
  std::string phases;
  if (run->phases().current().kind() == Phase::INDEX) {
    EXPECT_TRUE(*run->TakeReport(0, Indexed(10, 0, 1), kStart));
  }
  while (!run->phases().over()) {
    const Phase phase = run->PhaseOf(0);
    absl::StrAppend(&phases, phases.empty() ? "" : " ", PhaseName(phase.kind()), phase.epoch());
    PhaseReport report = Trained(phase.number(), 10);
    if (phase.kind() == Phase::EVAL) {
      EvalAccumulator sums;
      for (int i = 0; i < 100; ++i)
        sums.Add(i < 100 * wrong[phase.epoch()] ? 2.0f : -2.0f, i % 10 == 9 ? 1.0f : 0.0f, 1.0f);
      *report.mutable_eval() = sums.ToProto();
    }
    if (phase.kind() == Phase::SAVE) {
      report.mutable_save()->set_model_dir(phase.model_dir());
      report.mutable_save()->set_model_digest(absl::StrCat("digest", phase.epoch()));
    }
    if (!*run->TakeReport(0, report, kStart)) return phases + " stands still";
  }
  return phases;
}

JobConfig BestConfig(uint32_t epochs) {
  JobConfig config = FakeCluster::Config(-1, 1, epochs);
  config.set_output_dir("/out");
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  return config;
}

JobRun::Options OptionsOfInstance(const JobConfig& config, uint64_t instance) {
  JobRun::Options options;
  options.config = &config;
  options.instance = instance;
  options.save_id = ModelSaveId(instance);
  return options;
}

TEST(JobRunTest, SavesTheModelOfEachBestEpochAndEndsWithTheLastOfThem) {
  const JobConfig config = BestConfig(4);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  EXPECT_EQ(LeadThrough({0.5, 0.6, 0.2, 0.3}, &run),
            "train0 eval0 save0 train1 eval1 train2 eval2 save2 train3 eval3");
  EXPECT_EQ(run.result().best().epoch(), 3u);
  EXPECT_EQ(run.result().best().save_id(), EpochSaveId(7, 2));
  EXPECT_EQ(run.result().model_digest(), "digest2");
  EXPECT_EQ(run.result().model_dir(), "/out/model");
  // What is reported is the final epoch.
  EXPECT_GT(run.result().eval().log_loss(), run.result().best().eval().log_loss());
}

// Leads a rank in sync through evaluations of one class, which have no AUC.
TEST(JobRunTest, WithoutADefinedMetricTheModelOfTheEndIsSavedWithAWarning) {
  JobConfig config = BestConfig(4);
  config.mutable_train()->mutable_early_stop()->set_metric(EarlyStop::AUC);
  config.mutable_train()->mutable_early_stop()->set_patience(1);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  ASSERT_TRUE(*run.TakeReport(0, Indexed(10, 0, 1), kStart));
  std::string save_id;
  while (!run.phases().over()) {
    const Phase phase = run.PhaseOf(0);
    PhaseReport report = Trained(phase.number(), 10);
    EvalAccumulator sums;
    sums.Add(1.0f, 1.0f, 1.0f);
    if (phase.kind() == Phase::EVAL) *report.mutable_eval() = sums.ToProto();
    if (phase.kind() == Phase::SAVE) {
      save_id = phase.save_id();
      report.mutable_save()->set_model_dir(phase.model_dir());
      report.mutable_save()->set_model_digest("of the end");
    }
    ASSERT_TRUE(*run.TakeReport(0, report, kStart));
  }
  EXPECT_EQ(run.result().epochs(), 4u);
  EXPECT_FALSE(run.result().stopped_early());
  EXPECT_FALSE(run.result().has_best());
  EXPECT_EQ(save_id, EpochSaveId(7, 3));
  EXPECT_EQ(run.result().model_digest(), "of the end");
  EXPECT_THAT(run.result().warnings(),
              testing::Contains(testing::AllOf(testing::HasSubstr("the AUC is not defined"),
                                               testing::HasSubstr("train.early_stop"),
                                               testing::HasSubstr("checkpoint.save: BEST")))
                  .Times(1));
}

TEST(JobRunTest, AnEvaluationWithoutExamplesFailsTheJob) {
  const JobConfig config = FakeCluster::Config(-1, 1, 9);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  ASSERT_TRUE(*run.TakeReport(0, Indexed(10, 0, 1), kStart));
  ASSERT_TRUE(*run.TakeReport(0, Trained(2, 10), kStart));
  PhaseReport empty = Ended(3);
  *empty.mutable_eval() = EvalAccumulator().ToProto();
  EXPECT_FALSE(*run.TakeReport(0, empty, kStart));
  EXPECT_THAT(std::string(run.failure().message()), testing::HasSubstr("data.eval_files"));
}

// The number by which a checkpoint of the epoch's end is named.
TEST(JobRunTest, TheStepOfTheBestEpochIsTheMeanOfItsRanks) {
  JobConfig config = FakeCluster::Config(0, 2, 1);
  JobRun run(&config, 2, kStart);
  PhaseReport first = Indexed(10, 0);
  *first.mutable_index()->add_files() = Files("a", 10).index().files(0);
  ASSERT_TRUE(run.TakeReport(0, first, kStart).ok());
  ASSERT_TRUE(*run.TakeReport(1, Indexed(0, 1), kStart));
  for (const uint32_t rank : {0, 1}) {
    NextTaskRequest ask;
    ask.set_rank(rank);
    for (uint64_t number = 1; number < 9; ++number) {
      ask.set_number(number);
      const auto reply = run.NextTask(ask);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (reply->kind() == NextTaskReply::EPOCH_DONE) break;
      ask.set_finished_task(reply->task().id());
    }
  }
  PhaseReport trained = Trained(2, 10);
  trained.mutable_train()->set_steps(8);
  ASSERT_TRUE(run.TakeReport(0, trained, kStart).ok());
  trained.mutable_train()->set_steps(4);
  trained.mutable_train()->set_examples(0);
  ASSERT_TRUE(*run.TakeReport(1, trained, kStart));
  ASSERT_EQ(run.phases().current().kind(), Phase::EVAL);
  PhaseReport evaluated = Ended(3);
  EvalAccumulator sums;
  for (const float label : {0.0f, 1.0f}) sums.Add(0.5f, label, 1.0f);
  *evaluated.mutable_eval() = sums.ToProto();
  ASSERT_TRUE(run.TakeReport(0, evaluated, kStart).ok());
  *evaluated.mutable_eval() = EvalAccumulator().ToProto();
  ASSERT_TRUE(*run.TakeReport(1, evaluated, kStart));
  EXPECT_EQ(run.result().global_step(), 12u);
  EXPECT_EQ(run.result().best().step(), 6u);
}

TEST(JobRunTest, StopsEarlyAndSavesTheModelOfThatEpoch) {
  JobConfig config = FakeCluster::Config(-1, 1, 9);
  config.mutable_train()->mutable_early_stop()->set_patience(2);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  EXPECT_EQ(LeadThrough({0.5, 0.4, 0.6, 0.5}, &run),
            "train0 eval0 train1 eval1 train2 eval2 train3 eval3 save3");
  EXPECT_TRUE(run.result().stopped_early());
  EXPECT_EQ(run.result().epochs(), 4u);
  EXPECT_EQ(run.result().model_digest(), "digest3");
  EXPECT_FALSE(run.trains_more());
  // The epoch that the job has reached is shown.
  EXPECT_EQ(run.phases().current().epoch(), 3u);
}

TEST(JobRunTest, AnEpochMayBeTheLastWhenItsEvaluationMayStopTraining) {
  JobConfig config = FakeCluster::Config(-1, 1, 9);
  config.mutable_train()->mutable_early_stop()->set_patience(2);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  std::vector<bool> may;
  const std::vector<double> wrong = {0.5, 0.4, 0.6, 0.3, 0.4, 0.5};
  ASSERT_TRUE(*run.TakeReport(0, Indexed(10, 0, 1), kStart));
  while (!run.phases().over()) {
    const Phase phase = run.PhaseOf(0);
    if (phase.kind() == Phase::TRAIN) may.push_back(run.MayBeLastEpoch());
    PhaseReport report = Trained(phase.number(), 10);
    EvalAccumulator sums;
    for (int i = 0; i < 100; ++i)
      sums.Add(i < 100 * wrong[phase.epoch()] ? 2.0f : -2.0f, i % 10 == 9 ? 1.0f : 0.0f, 1.0f);
    if (phase.kind() == Phase::EVAL) *report.mutable_eval() = sums.ToProto();
    ASSERT_TRUE(*run.TakeReport(0, report, kStart));
  }
  EXPECT_THAT(may, testing::ElementsAre(false, false, false, true, false, true));
}

// A scheduler that takes over while the model of the stopping epoch is saved.
TEST(JobRunTest, ARestoredRunContinuesWithTheSaveAndStops) {
  JobConfig config = BestConfig(9);
  config.mutable_train()->mutable_early_stop()->set_patience(1);
  config.mutable_train()->mutable_early_stop()->set_min_delta(5);
  JobRun run(OptionsOfInstance(config, 7), kStart);
  EXPECT_EQ(LeadThrough({0.5, 0.4}, &run), "train0 eval0 save0 train1 eval1 save1");
  JobRun again(OptionsOfInstance(config, 7), kStart);
  ASSERT_TRUE(*again.TakeReport(0, Indexed(10, 0, 1), kStart));
  JobRun before(OptionsOfInstance(config, 7), kStart);
  ASSERT_TRUE(*before.TakeReport(0, Indexed(10, 0, 1), kStart));
  RunState saved = run.Save();
  ASSERT_TRUE(again.Restore(7, saved, true, kStart).ok());
  EXPECT_EQ(LeadThrough({}, &again), "save1");
  EXPECT_EQ(again.result().best().save_id(), EpochSaveId(7, 1));
  EXPECT_TRUE(again.result().stopped_early());
}

TEST(JobRunTest, ARunThatGoesBackHasTheBestModelOfBeforeAndNamesIt) {
  const JobConfig config = BestConfig(3);
  JobRun first(OptionsOfInstance(config, 7), kStart);
  LeadThrough({0.3, 0.2, 0.5}, &first);
  ResumePoint point;
  CheckpointState* const state = point.manifest.mutable_checkpoint();
  // The cut lies in the second epoch, whose evaluation was better in the run that was lost.
  state->set_epoch(1);
  state->set_global_step(2);
  state->set_steps_done(1);
  state->set_steps_per_epoch(1);
  state->set_worker_num(1);
  state->set_global_batch(10);
  state->add_workers();
  const PhaseReport indexed = Indexed(10, 0, 1);
  for (const SeenFile& file : indexed.index().train_seen()) *state->add_train_files() = file;
  JobResult* const result = state->mutable_result();
  result->set_epochs(1);
  result->mutable_best()->set_epoch(1);
  result->mutable_best()->mutable_eval()->set_log_loss(0.4);
  result->mutable_best()->set_save_id(EpochSaveId(7, 0));
  result->mutable_best()->set_model_digest("digest0");
  JobRun::Options options = OptionsOfInstance(config, 8);
  options.resume = &point;
  JobRun second(options, kStart);
  EXPECT_EQ(LeadThrough({0, 0.9, 0.8}, &second), "train1 eval1 train2 eval2");
  EXPECT_EQ(second.result().best().save_id(), EpochSaveId(7, 0));
  EXPECT_EQ(second.result().model_digest(), "digest0");
  EXPECT_THAT(second.NamedModels(), testing::Contains(EpochSaveId(7, 0)));
}

TEST(JobRunTest, AJobWhoseExamplesAllHaveWeightZeroFails) {
  JobConfig config = FakeCluster::Config(-1, 1);
  config.mutable_data()->set_weight_column("importance");
  JobRun run(&config, 1, kStart);
  ASSERT_TRUE(*run.TakeReport(0, Indexed(10, 0, 1), kStart));
  PhaseReport report = Trained(2, 10);
  report.mutable_train()->set_weight_sum(0);
  report.mutable_train()->set_loss_sum(0);
  ASSERT_FALSE(*run.TakeReport(0, report, kStart));
  EXPECT_TRUE(absl::IsFailedPrecondition(run.failure()));
  EXPECT_THAT(std::string(run.failure().message()), testing::HasSubstr("importance"));
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

TEST(JobRunTest, DataThatMakesTooManyTasksFailsTheJobAndNamesTheOption) {
  JobConfig config = FakeCluster::Config(0, 2);
  config.mutable_data()->set_task_bytes(1024);
  for (const uint64_t bytes : {uint64_t{100} << 30, uint64_t{1} << 62, UINT64_MAX}) {
    JobRun run(&config, 2, kStart);
    ASSERT_TRUE(run.TakeReport(0, Files("a", bytes), kStart).ok());
    EXPECT_TRUE(run.failure().ok());
    EXPECT_FALSE(*run.TakeReport(1, Files("b", 7), kStart));
    EXPECT_FALSE(run.failure().ok());
    EXPECT_EQ(run.phases().current().kind(), Phase::INDEX);
  }
  JobRun run(&config, 2, kStart);
  ASSERT_TRUE(run.TakeReport(0, Files("a", uint64_t{100} << 30), kStart).ok());
  ASSERT_TRUE(run.TakeReport(1, Files("b", 7), kStart).ok());
  EXPECT_THAT(std::string(run.failure().message()), testing::HasSubstr("data.task_bytes"));
}

TEST(JobRunTest, TooManyPiecesFailTheJobBeforeAllRanksHaveReported) {
  JobConfig config = FakeCluster::Config(-1, 3);
  PhaseReport report = Indexed(10, 0, 3);
  DataPieces* const pieces = report.mutable_index()->mutable_pieces();
  pieces->mutable_file()->Resize(kMaxDataPieces / 2 + 1, 0);
  JobRun run(&config, 3, kStart);
  ASSERT_TRUE(run.TakeReport(0, report, kStart).ok());
  EXPECT_TRUE(run.failure().ok());
  ASSERT_TRUE(run.TakeReport(1, report, kStart).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(run.failure())) << run.failure();
  // No other job deals pieces.
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  JobRun other(&config, 3, kStart);
  for (const uint32_t rank : {0, 1, 2}) ASSERT_TRUE(other.TakeReport(rank, report, kStart).ok());
  EXPECT_TRUE(other.failure().ok()) << other.failure();
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
  EXPECT_TRUE(absl::IsInternal(run.failure())) << run.failure();
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
    EXPECT_TRUE(absl::IsFailedPrecondition(run.failure())) << run.failure();
    EXPECT_THAT(std::string(run.failure().message()),
                testing::HasSubstr(dropped == 0 ? "data.train_files" : "data.drop_last"));
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
      testing::AllOf(testing::HasSubstr("2 malformed lines"), testing::HasSubstr("a:1: no label")));

  config.mutable_strategy()->set_a_sync(false);
  JobRun sync(&config, 1, kStart);
  ASSERT_TRUE(sync.TakeReport(0, Indexed(2, 0, 1), kStart).ok());
  ASSERT_TRUE(sync.TakeReport(0, trained, kStart).ok());
  EXPECT_THAT(
      std::string(sync.failure().message()),
      testing::AllOf(testing::HasSubstr("2 malformed lines"), testing::HasSubstr("a:1: no label")));

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

// What is left of a lost rank: its sums, on top of those of the attempt's beginning that a commit
// does not bring.
TEST(JobRunTest, TheStateOfALostRankIsThatOfItsCommit) {
  const JobConfig config = FakeCluster::Config(-1, 2, /*epochs=*/3);
  ResumePoint point;
  CheckpointState* const saved = point.manifest.mutable_checkpoint();
  saved->set_mode("sync");
  saved->set_global_step(7);
  saved->set_worker_num(2);
  saved->set_epoch(1);
  saved->set_steps_done(2);
  saved->set_steps_per_epoch(5);
  saved->set_summary_lacks(true);
  for (const uint64_t examples : {20, 21}) {
    WorkerState* const worker = saved->add_workers();
    worker->mutable_train()->set_examples(examples);
    worker->mutable_train()->set_bad_lines(3);
    worker->set_net_state("saved");
  }
  saved->add_train_files()->set_path("train.csv");
  saved->mutable_train_files(0)->set_bytes(2000);
  JobRun run({&config, 2, 0, "", 20, &point}, kStart);
  EXPECT_EQ(run.began_after(), 7u);
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(run.TakeReport(rank, Indexed(50, rank), kStart).ok());
  ASSERT_TRUE(run.failure().ok()) << run.failure();
  TrainTotals totals;
  totals.set_examples(41);
  totals.set_steps(4);
  WorkerState state = run.StateOfLost(1, /*step=*/9, totals);
  EXPECT_EQ(state.train().examples(), 41u);
  EXPECT_EQ(state.train().steps(), 4u);
  EXPECT_EQ(state.train().bad_lines(), 3u) << "of this epoch, before the attempt";
  EXPECT_EQ(state.net_state(), "saved");
  totals.set_net_state("newer");
  state = run.StateOfLost(1, /*step=*/11, totals);
  EXPECT_EQ(state.train().bad_lines(), 0u) << "the next epoch";
  EXPECT_EQ(state.net_state(), "newer");
  EXPECT_TRUE(run.StateAt(9, kStart)->summary_lacks()) << "as in the checkpoint before";
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

// ----------------------------------------------------------------- checkpoints of async and Geo

PhaseReport FileSeen(uint64_t bytes) {
  PhaseReport report = Files("a", bytes);
  SeenFile* seen = report.mutable_index()->add_train_seen();
  seen->set_path("/d/a");
  seen->set_bytes(bytes);
  return report;
}

NextTaskRequest AskTask(uint32_t rank, uint64_t number, uint64_t finished = 0,
                        uint64_t examples = 0, uint32_t epoch = 0) {
  NextTaskRequest request;
  request.set_rank(rank);
  request.set_number(number);
  request.set_epoch(epoch);
  request.set_finished_task(finished);
  request.set_finished_examples(examples);
  return request;
}

// A run of two ranks over one file of 4 tasks, in its first epoch.
class TaskRunTest : public testing::Test {
 protected:
  TaskRunTest() {
    config_ = FakeCluster::Config(0, 2, 2);
    config_.mutable_data()->set_shuffle(false);
    config_.mutable_data()->clear_eval_files();
  }
  void Begin(JobRun* run) {
    ASSERT_TRUE(run->TakeReport(0, FileSeen(400), kStart).ok());
    PhaseReport seen = FileSeen(400);
    seen.mutable_index()->clear_files();
    ASSERT_TRUE(*run->TakeReport(1, seen, kStart));
    ASSERT_EQ(run->phases().current().kind(), Phase::TRAIN);
  }
  static RankPart Part(uint64_t task, uint64_t end, uint64_t examples, uint64_t tasks,
                       uint32_t epoch = 0) {
    RankPart part;
    part.tasks = tasks;
    part.held.set_sequence(9);
    part.held.set_task_id(task);
    part.held.set_task_end(end);
    part.held.set_epoch(epoch);
    part.held.mutable_totals()->set_examples(examples);
    part.held.mutable_totals()->set_steps(examples / 10);
    part.held.mutable_totals()->set_weight_sum(examples);
    part.state.mutable_train()->set_examples(12345);  // of another moment
    part.state.mutable_train()->set_bad_lines(3);
    return part;
  }

  JobConfig config_;
};

TEST_F(TaskRunTest, AHeldEpochEndsWhenItIsReleased) {
  JobRun run(&config_, 2, kStart);
  Begin(&run);
  EXPECT_TRUE(run.trains_more());
  EXPECT_FALSE(run.all_training());
  for (const uint32_t rank : {0, 1}) run.NextTask(AskTask(rank, 1)).status().IgnoreError();
  EXPECT_TRUE(run.all_training());
  for (uint64_t i = 2; i <= 4; ++i)
    run.NextTask(AskTask(0, i, i == 2 ? 1 : i)).status().IgnoreError();
  run.NextTask(AskTask(0, 5)).status().IgnoreError();
  run.NextTask(AskTask(1, 2, 2)).status().IgnoreError();
  run.Hold(true);
  ASSERT_FALSE(*run.TakeReport(0, Trained(2, 20), kStart));
  EXPECT_FALSE(run.ended_training());
  ASSERT_FALSE(*run.TakeReport(1, Trained(2, 20), kStart));
  EXPECT_TRUE(run.ended_training());
  EXPECT_FALSE(*run.TakeReport(1, Trained(2, 20), kStart)) << "a repeated report";
  EXPECT_FALSE(run.TryAdvance(kStart));
  EXPECT_EQ(run.phases().current().epoch(), 0u);
  run.Hold(false);
  EXPECT_TRUE(run.TryAdvance(kStart));
  EXPECT_FALSE(run.TryAdvance(kStart));
  EXPECT_EQ(run.phases().current().epoch(), 1u);
  EXPECT_EQ(run.result().examples(), 40u);
}

// Pushes carry no state, so a replacement gets the newest one that the rank has reported.
TEST_F(TaskRunTest, ALaterLifeOfARankGetsTheNewestState) {
  JobRun run(&config_, 2, kStart);
  Begin(&run);
  for (const uint32_t rank : {0, 1}) run.NextTask(AskTask(rank, 1)).status().IgnoreError();
  uint64_t replayed = 0;
  ASSERT_TRUE(run.Rejoin(1, 1, {}, &replayed).ok());
  EXPECT_EQ(run.PhaseOf(1).resume().net_state(), "") << "none is known";
  WorkerState state;
  for (const char* bytes : {"older", "newer", ""}) {
    state.set_net_state(bytes);
    run.NoteState(1, state);
  }
  ASSERT_TRUE(run.Rejoin(1, 2, {}, &replayed).ok());
  EXPECT_EQ(run.PhaseOf(1).resume().net_state(), "newer");
  ASSERT_TRUE(run.Rejoin(1, 3, {}, &replayed).ok());
  EXPECT_EQ(run.PhaseOf(1).resume().net_state(), "newer") << "nothing was reported since";
  EXPECT_EQ(run.PhaseOf(0).resume().net_state(), "");
}

// It may begin with the last evaluation, after which there is nothing to train.
TEST(JobRunTest, ALaterLifeThatBeginsWithAnEvaluationGetsTheState) {
  const JobConfig config = FakeCluster::Config(-1, 2);
  JobRun run(&config, 2, kStart);
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(run.TakeReport(rank, Indexed(50, rank), kStart).ok());
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(run.TakeReport(rank, Trained(2, 50), kStart).ok());
  ASSERT_EQ(run.phases().current().kind(), Phase::EVAL);
  HeldOfRank held;
  held.committed.set_committed(run.step_limit());
  held.committed.mutable_totals()->set_net_state("of the end");
  uint64_t replayed = 0;
  ASSERT_TRUE(run.Rejoin(1, 1, held, &replayed).ok());
  EXPECT_EQ(run.PhaseOf(1).resume().net_state(), "of the end");
  EXPECT_FALSE(run.PhaseOf(0).has_resume());
}

TEST_F(TaskRunTest, ACheckpointNamesTheDataLeftAndARunContinuesThere) {
  JobRun run(&config_, 2, kStart);
  Begin(&run);
  run.NextTask(AskTask(0, 1)).status().IgnoreError();         // 1
  run.NextTask(AskTask(1, 1)).status().IgnoreError();         // 2
  run.NextTask(AskTask(0, 2, 1, 30)).status().IgnoreError();  // 3
  const auto state =
      run.StateOf(17, {Part(3, 20, 50, 1), Part(2, 10, 10, 0)}, kStart + absl::Seconds(4));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->mode(), "async");
  EXPECT_EQ(state->global_step(), 17u);
  EXPECT_EQ(state->task_bytes(), 100u);
  EXPECT_EQ(state->epoch_seconds(), 4);
  ASSERT_EQ(state->open_tasks_size(), 3);
  EXPECT_EQ(state->open_tasks(0).id(), 2u);
  EXPECT_EQ(state->open_tasks(0).first_offset(), 10u);
  EXPECT_EQ(state->open_tasks(1).id(), 3u);
  EXPECT_EQ(state->open_tasks(1).first_offset(), 20u);
  EXPECT_EQ(state->open_tasks(2).id(), 4u);
  ASSERT_EQ(state->workers_size(), 2);
  EXPECT_EQ(state->workers(0).train().examples(), 50u);
  EXPECT_EQ(state->workers(0).train().steps(), 5u);
  EXPECT_EQ(state->workers(0).train().bad_lines(), 3u);
  EXPECT_EQ(run.StateOf(17, {Part(2, 1, 1, 0), Part(2, 10, 10, 0)}, kStart).status().code(),
            absl::StatusCode::kInternal);
  // Positions of an earlier epoch do not count.
  const auto fresh = run.StateOf(17, {Part(99, 7, 70, 0, /*epoch=*/1), Part(2, 10, 10, 0)}, kStart);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(fresh->workers(0).train().examples(), 0u);

  // With tasks of the saved size, on three workers.
  ResumePoint point;
  point.dir = "/c/step-17";
  *point.manifest.mutable_checkpoint() = *state;
  point.examples_replayed = 8;
  config_.set_worker_num(3);
  config_.mutable_data()->set_task_bytes(0);
  JobRun resumed({&config_, 3, 0, "", 0, &point}, kStart);
  ASSERT_TRUE(resumed.TakeReport(0, FileSeen(400), kStart).ok());
  PhaseReport seen = FileSeen(400);
  seen.mutable_index()->clear_files();
  ASSERT_TRUE(resumed.TakeReport(1, seen, kStart).ok());
  ASSERT_TRUE(*resumed.TakeReport(2, seen, kStart));
  EXPECT_EQ(resumed.phases().current().first_step(), 3u);  // (5 + 1) / 2
  ASSERT_NE(resumed.ResumeOf(0), nullptr);
  EXPECT_EQ(resumed.ResumeOf(0)->train().examples(), 60u);
  const auto first = resumed.NextTask(AskTask(2, 1));
  EXPECT_EQ(first->task().id(), 2u);
  EXPECT_EQ(first->task().first_offset(), 10u);
  EXPECT_EQ(resumed.result().examples_replayed(), 8u);
  // A rank that has pushed nothing since keeps what it began with.
  std::vector<RankPart> parts(3);
  const auto again = resumed.StateOf(18, parts, kStart);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->workers(0).train().examples(), 60u);
  EXPECT_EQ(again->workers(1).train().examples(), 0u);
  ASSERT_EQ(again->open_tasks_size(), 3);
  EXPECT_EQ(again->open_tasks(0).first_offset(), 10u);
}

// A run whose one file has 1 MB of text in shuffled order, so that it is dealt to tasks.
class DealtRunTest : public TaskRunTest {
 protected:
  static constexpr uint64_t kBytes = 1'000'000;
  DealtRunTest() {
    config_.mutable_data()->set_shuffle(true);
    config_.mutable_data()->set_task_bytes(0);
  }
  void Index(JobRun* run, uint64_t bytes = kBytes) {
    PhaseReport seen = FileSeen(bytes);
    ASSERT_TRUE(run->TakeReport(0, seen, kStart).ok());
    seen.mutable_index()->clear_files();
    ASSERT_TRUE(*run->TakeReport(1, seen, kStart));
  }
  static DataTask Lease(JobRun* run, uint32_t rank, uint64_t number) {
    const auto reply = run->NextTask(AskTask(rank, number));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->task() : DataTask();
  }
};

TEST_F(DealtRunTest, ACheckpointNamesTheDealAndLeavesOutItsParts) {
  JobRun run(&config_, 2, kStart);
  Index(&run);
  const DataTask leased = Lease(&run, 0, 1);
  EXPECT_GT(leased.parts().file_size(), 32);
  auto state = run.StateOf(1, {Part(leased.id(), 20, 20, 0), RankPart()}, kStart);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->part_bytes(), 1024u);
  for (const DataTask& task : state->open_tasks()) EXPECT_EQ(task.parts().file_size(), 0);

  ResumePoint point;
  point.dir = "/c/step-1";
  *point.manifest.mutable_checkpoint() = *state;
  JobRun resumed({&config_, 2, 0, "", 0, &point}, kStart);
  Index(&resumed);
  const DataTask again = Lease(&resumed, 1, 1);
  EXPECT_EQ(again.id(), leased.id());
  EXPECT_EQ(again.first_offset(), 20u);
  EXPECT_EQ(again.parts().SerializeAsString(), leased.parts().SerializeAsString());
  EXPECT_EQ(resumed.result().warnings_size(), 0);

  // A version that cut all data into pieces wrote the checkpoint: its tasks are pieces.
  point.manifest.mutable_checkpoint()->clear_part_bytes();
  JobRun older({&config_, 2, 0, "", 0, &point}, kStart);
  Index(&older);
  const DataTask piece = Lease(&older, 0, 1);
  EXPECT_EQ(piece.path(), "a");
  EXPECT_EQ(piece.end() - piece.begin(), state->task_bytes());
  EXPECT_EQ(piece.parts().file_size(), 0);
}

TEST_F(DealtRunTest, ARestartedSchedulerKeepsTheTasksThatRanksHold) {
  JobRun run(&config_, 2, kStart);
  Index(&run);
  const DataTask leased = Lease(&run, 0, 1);
  for (const bool older : {false, true}) {
    RunState saved = run.Save();
    EXPECT_EQ(saved.part_bytes(), 1024u);
    if (older) saved.clear_part_bytes();
    JobRun restored(&config_, 2, kStart);
    Index(&restored);
    const absl::Status status = restored.Restore(2, saved, true, kStart);
    ASSERT_TRUE(status.ok()) << status;
    const DataTask again = Lease(&restored, 0, 1);
    EXPECT_EQ(again.parts().SerializeAsString() == leased.parts().SerializeAsString(), !older);
    EXPECT_EQ(again.path().empty(), !older);
  }
}

TEST_F(DealtRunTest, DataTooLargeToBeDealtGivesAWarningThatItsOrderMatters) {
  JobRun run(&config_, 2, kStart);
  Index(&run, 2 * TaskCut::kDealtBytesPerWorker);
  ASSERT_EQ(run.result().warnings_size(), 1);
  EXPECT_THAT(run.result().warnings(0), testing::HasSubstr("order of the lines"));
  config_.mutable_data()->set_shuffle(false);
  JobRun in_order(&config_, 2, kStart);
  Index(&in_order, 2 * TaskCut::kDealtBytesPerWorker);
  EXPECT_EQ(in_order.result().warnings_size(), 0);
}

TEST_F(TaskRunTest, ACheckpointOfOtherDataIsRefused) {
  ResumePoint point;
  point.dir = "/c/step-17";
  CheckpointState* state = point.manifest.mutable_checkpoint();
  state->set_mode("async");
  state->set_worker_num(2);
  state->set_task_bytes(100);
  state->add_workers();
  state->add_workers();
  *state->add_train_files() = FileSeen(400).index().train_seen(0);
  state->add_open_tasks()->set_id(5);
  JobRun run({&config_, 2, 0, "", 0, &point}, kStart);
  ASSERT_TRUE(run.TakeReport(0, FileSeen(400), kStart).ok());
  PhaseReport seen = FileSeen(400);
  seen.mutable_index()->clear_files();
  ASSERT_FALSE(*run.TakeReport(1, seen, kStart));
  EXPECT_TRUE(absl::IsDataLoss(run.failure())) << run.failure();
  EXPECT_THAT(std::string(run.failure().message()), testing::HasSubstr("/c/step-17"));
}

}  // namespace
}  // namespace sluice

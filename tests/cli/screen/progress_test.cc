#include "cli/screen/progress.h"

#include <sstream>

#include "cli/screen/status_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/base/fake_clock.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

JobStatus Running() {
  JobStatus status;
  status.set_job_id("adult-1");
  status.set_state(JOB_RUNNING);
  status.set_epochs(8);
  status.set_epoch(3);
  status.set_phase("train");
  status.set_global_step(1204);
  status.set_examples_per_second(45210.4);
  status.set_loss(0.3125);
  status.set_worker_num(2);
  status.set_workers_alive(2);
  status.set_eta_s(200);
  status.mutable_staleness()->set_pushes(10);
  status.mutable_staleness()->set_sum(18);
  status.mutable_staleness()->set_max(7);
  EpochResult* epoch = status.add_epochs_log();
  epoch->set_epoch(1);
  epoch->set_examples(32561);
  epoch->mutable_eval()->set_auc(0.91054);
  epoch->mutable_eval()->set_examples(16281);
  WorkerProgress* worker = status.add_workers();
  worker->set_rank(1);
  worker->set_epoch(3);
  worker->set_step(35);
  worker->set_loss(0.3);
  worker->set_examples_per_second(20000);
  return status;
}

TEST(ProgressTest, CheckpointsAreShownOnce) {
  JobStatus status = Running();
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  const auto news = [&] {
    out.str("");
    printer.Update(status);
    return out.str();
  };
  status.mutable_checkpoint()->set_step(7);
  status.mutable_checkpoint()->set_dir("/out/checkpoints/step-7");
  EXPECT_THAT(news(), HasSubstr("resumes from /out/checkpoints/step-7"));
  EXPECT_THAT(news(), Not(HasSubstr("step-7")));
  status.mutable_checkpoint()->set_step(1200);
  status.mutable_checkpoint()->set_dir("/out/checkpoints/step-1200");
  status.mutable_checkpoint()->set_made(1);
  EXPECT_THAT(news(), HasSubstr("checkpoint of step 1,200"));
  EXPECT_THAT(news(), Not(HasSubstr("1,200")));
  EXPECT_THAT(LiveLine(status, 500), HasSubstr("checkpoint of step 1,200"));
  status.set_state(JOB_DONE);
  *status.mutable_result()->mutable_checkpoint() = status.checkpoint();
  status.mutable_result()->set_resumed_from("/out/checkpoints/step-7");
  EXPECT_THAT(FinalText(status), AllOf(HasSubstr("resumed from: /out/checkpoints/step-7"),
                                       HasSubstr("checkpoints: 1 made, 0 failed")));
}

TEST(ProgressTest, LossesAreShownOnceAndCounted) {
  JobStatus status = Running();
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  const auto news = [&] {
    out.str("");
    printer.Update(status);
    return out.str();
  };
  EXPECT_THAT(news(), Not(HasSubstr("recovery")));
  status.mutable_recovery()->set_worker_losses(1);
  status.mutable_recovery()->set_examples_replayed(1200);
  status.mutable_recovery()->set_last("worker 1 was killed; rank 1 continues as worker 2");
  EXPECT_THAT(news(), HasSubstr("as worker 2"));
  EXPECT_THAT(news(), Not(HasSubstr("as worker 2")));
  EXPECT_THAT(LiveLine(status, 500), HasSubstr("1 worker lost, 1,200 examples"));
  status.set_state(JOB_RECOVERING);
  status.set_message("waits for pserver 1");
  EXPECT_THAT(LiveLine(status, 500),
              AllOf(HasSubstr("waits for pserver 1"), HasSubstr("1 worker lost")));
  status.set_state(JOB_DONE);
  EXPECT_THAT(LiveLine(status, 500), HasSubstr("1 worker lost"));
  *status.mutable_result()->mutable_recovery() = status.recovery();
  EXPECT_THAT(FinalText(status), HasSubstr("recovery: 1 worker lost, 1,200 examples"));
}

TEST(ProgressTest, EvaluationWithoutExamplesGetsANote) {
  JobStatus status = Running();
  status.set_state(JOB_DONE);
  status.clear_epochs_log();
  std::ostringstream out;
  const auto text = [&] {
    out.str("");
    ProgressPrinter(ProgressMode::kPlain, &out).Finish(status);
    return out.str();
  };
  const char* note = "data.eval_files\n";
  EXPECT_THAT(text(), Not(HasSubstr(note)));
  status.mutable_result()->mutable_eval();
  EXPECT_THAT(text(), HasSubstr(note));
  status.mutable_result()->mutable_eval()->set_examples(1);
  EXPECT_THAT(text(), Not(HasSubstr(note)));
}

TEST(ProgressTest, LiveLineHasEveryFigureAndFitsItsWidth) {
  EXPECT_EQ(LiveLine(Running(), 500),
            "adult-1 epoch 3/8 train | step 1,204 | 45,210 examples/s | loss 0.3125 | AUC 0.9105 | "
            "staleness 1.8 (max 7)"
            " | workers 2/2 | ETA 3 m 20 s");
  EXPECT_EQ(LiveLine(Running(), 79),
            "ep 3/8 step 1,204 45k ex/s loss 0.312 AUC 0.911 stale 1.8 ETA 3m20s");
  EXPECT_EQ(LiveLine(Running(), 20).size(), 20);
}

TEST(ProgressTest, QueuedJobShowsWhatItWaitsFor) {
  JobStatus status;
  status.set_job_id("adult-1");
  status.set_state(JOB_QUEUED);
  status.set_message("2 of 4 workers are free");
  EXPECT_EQ(LiveLine(status, 500), "adult-1 queued | 2 of 4 workers are free");
  status.set_waiting_for("waits for 2 workers");
  EXPECT_EQ(LiveLine(status, 500), "adult-1 queued | waits for 2 workers");
  status.set_waiting_for("pserver 1");
  EXPECT_EQ(LiveLine(status, 500), "adult-1 queued | waits for pserver 1");
}

TEST(ProgressTest, PlainLinesComeOncePerChangeAndForEachReportedStep) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  JobStatus status = Running();
  printer.Update(status);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("epoch 1: 32,561 examples"),
                               HasSubstr("adult-1: running, train, epoch 3/8")));
  out.str("");
  status.mutable_workers(0)->set_step(65);
  printer.Update(status);
  EXPECT_EQ(out.str(), "");
  WatchJobReply reply;
  StepLoss* step = reply.add_steps();
  step->set_rank(1);
  step->set_epoch(3);
  step->set_step(1030);
  step->set_loss(0.3);
  step->set_examples_per_second(20000);
  printer.Steps(reply.steps());
  EXPECT_EQ(out.str(), "worker 1: epoch 3 step 1,030 loss 0.30000 20,000 examples/s\n");
  out.str("");
  NamedValue* const logged = step->add_user();
  logged->set_name("norm");
  logged->set_value(1.5);
  printer.Steps(reply.steps());
  EXPECT_THAT(out.str(), HasSubstr("20,000 examples/s, norm 1.50000\n"));
}

TEST(ProgressTest, AWorkerGetsItsFirstHundredLinesOfSteps) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  WatchJobReply reply;
  for (int i = 0; i < 500; ++i) {
    StepLoss* step = reply.add_steps();
    step->set_rank(i % 2);
    step->set_step(i);
  }
  // Far less than the 10 seconds after which the next line comes.
  printer.Steps(reply.steps());
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 200);
  EXPECT_THAT(text, AllOf(HasSubstr("step 199 "), Not(HasSubstr("step 200 "))));
}

TEST(ProgressTest, ReasonOfAFailureIsLeftToTheErrorOfTheCommand) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  JobStatus status = Running();
  printer.Update(status);
  status.set_state(JOB_FAILED);
  status.set_message("the disk is full");
  printer.Update(status);
  printer.Finish(status);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("failed"), Not(HasSubstr("the disk is full"))));
}

TEST(ProgressTest, EpochIsPrintedOnceItsEvaluationHasArrived) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  JobStatus status = Running();
  status.set_epoch(1);
  status.mutable_epochs_log(0)->clear_eval();
  printer.Update(status);
  EXPECT_THAT(out.str(), Not(HasSubstr("epoch 1: 32,561")));
  status.mutable_epochs_log(0)->mutable_eval()->set_examples(5);
  printer.Update(status);
  EXPECT_THAT(out.str(), HasSubstr("epoch 1: 32,561"));
}

TEST(ProgressTest, EachEpochHasOneLine) {
  for (const ProgressMode mode : {ProgressMode::kPlain, ProgressMode::kLive}) {
    std::ostringstream out;
    ProgressPrinter printer(mode, &out);
    JobStatus status = Running();
    status.set_epochs(100);
    for (int epoch = 2; epoch <= 100; ++epoch) {
      *status.add_epochs_log() = status.epochs_log(0);
      status.mutable_epochs_log(epoch - 1)->set_epoch(epoch);
      status.set_epoch(epoch);
      printer.Update(status);
    }
    status.set_state(JOB_DONE);
    *status.mutable_result()->mutable_epochs_log() = status.epochs_log();
    printer.Finish(status);
    size_t lines = 0;
    const std::string text = out.str();
    for (size_t at = text.find("32,561"); at != std::string::npos; at = text.find("32,561", at + 1))
      ++lines;
    EXPECT_EQ(lines, 100u);
  }
}

TEST(ProgressTest, LiveModeRewritesOneLineAndKeepsNotes) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kLive, &out);
  JobStatus status = Running();
  printer.Update(status);
  printer.Update(status);
  printer.Note("note");
  const std::string text = out.str();
  // The line is long or short, depending on the width of the terminal that runs this test (100
  // columns without one).
  EXPECT_THAT(text, testing::ContainsRegex("\r(adult-1 epoch|ep) 3/8"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[Knote\n"));
  EXPECT_THAT(text, HasSubstr("epoch  examples"));
  EXPECT_EQ(text.find("0.91054"), text.rfind("0.91054")) << "an epoch is printed once";
}

TEST(ProgressTest, TextFromASchedulerNeitherCommandsTheTerminalNorForgesLines) {
  const std::string evil = "\x1B]0;t\x07\nFORGED\xC2\x9B\xE2\x80\xAE";
  std::ostringstream out;
  JobStatus status = Running();
  status.set_state(JOB_QUEUED);
  status.set_message(evil);
  status.add_warnings(evil);
  status.mutable_recovery()->set_last(evil);
  status.mutable_result()->set_model_dir(evil);
  ProgressPrinter printer(ProgressMode::kPlain, &out);
  printer.Update(status);
  status.set_state(JOB_DONE);
  printer.Finish(status);
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("FORGED"));
  for (const char* command : {"\x1B", "\x07", "\nFORGED", "\xC2\x9B", "\xE2\x80\xAE"})
    EXPECT_THAT(text, Not(HasSubstr(command)));
}

TEST(ProgressTest, FinalTextHasMetricsAndTheModel) {
  JobStatus status = Running();
  status.set_state(JOB_DONE);
  JobResult* result = status.mutable_result();
  result->set_mode("geo");
  result->set_k_steps(20);
  result->set_epochs(1);
  *result->add_epochs_log() = status.epochs_log(0);
  *result->mutable_eval() = status.epochs_log(0).eval();
  result->set_model_dir("/out/model");
  result->set_bad_lines(3);
  EXPECT_THAT(FinalText(status),
              AllOf(HasSubstr("accuracy"), HasSubstr("0.91054"), HasSubstr("mode geo (k_steps 20)"),
                    HasSubstr("model: /out/model"), HasSubstr("bad lines: 3"),
                    HasSubstr("on 16,281 examples")));
}

TEST(ProgressTest, TheEndSaysWhichEpochWasTheBestAndWhoseModelWasKept) {
  JobStatus status;
  status.set_state(JOB_DONE);
  status.set_epochs(100);
  JobResult* const result = status.mutable_result();
  result->set_epochs(9);
  result->set_model_dir("/out/model");
  result->mutable_best()->set_epoch(9);
  result->mutable_best()->mutable_eval()->set_log_loss(0.4);
  EXPECT_THAT(FinalText(status), Not(HasSubstr("best")));
  result->mutable_best()->set_epoch(4);
  EXPECT_THAT(FinalText(status), AllOf(HasSubstr("best: epoch 4"), HasSubstr("0.40000"),
                                       HasSubstr("model is that of epoch 9")));
  result->clear_model_dir();  // a job that was cancelled has saved none
  EXPECT_THAT(FinalText(status), AllOf(HasSubstr("best: epoch 4"), Not(HasSubstr("the model"))));
  result->set_model_dir("/out/model");
  status.mutable_config()->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  result->set_stopped_early(true);
  result->mutable_early_stop()->set_without_improvement(5);
  const std::string text = FinalText(status);
  EXPECT_THAT(text, AllOf(HasSubstr("stopped early"), HasSubstr("5 evaluations")));
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_THAT(last, HasSubstr("epoch 4"));
}

TEST(ProgressTest, JobThatOnlyEvaluatesHasNoEpochsAndSteps) {
  JobStatus status;
  status.set_job_id("ms-2");
  status.set_state(JOB_RUNNING);
  status.set_phase("eval");
  status.set_worker_num(1);
  status.set_workers_alive(1);
  EXPECT_EQ(LiveLine(status, 500), "ms-2 eval | workers 1/1");
  EXPECT_EQ(LiveLine(status, 20), "eval");
  std::ostringstream out;
  ProgressPrinter(ProgressMode::kPlain, &out).Update(status);
  EXPECT_EQ(out.str(), "ms-2: running, eval, workers 1/1\n");
  status.set_state(JOB_DONE);
  status.mutable_result()->mutable_eval()->set_examples(2000);
  EXPECT_THAT(FinalText(status),
              AllOf(HasSubstr("ms-2: done, evaluated 2,000 examples\n"), Not(HasSubstr("epoch"))));
}

TEST(ProgressTest, WorkerWithoutFiguresHasDashes) {
  WorkerProgress worker;
  worker.set_step(1007);
  EXPECT_EQ(WorkerLine(worker, 3), "rank 0 on worker 3: epoch - step 1,007 loss - - examples/s");
  worker.set_epoch(1527);
  worker.set_loss(0.5);
  EXPECT_EQ(WorkerLine(worker, std::nullopt),
            "rank 0: epoch 1,527 step 1,007 loss 0.50000 - examples/s");
}

TEST(ProgressTest, ModeFollowsTheFlagThenTheTerminal) {
  EXPECT_EQ(*ParseProgressMode("auto", true), ProgressMode::kLive);
  EXPECT_EQ(*ParseProgressMode("auto", false), ProgressMode::kPlain);
  EXPECT_EQ(*ParseProgressMode("live", false), ProgressMode::kLive);
  EXPECT_FALSE(ParseProgressMode("loud", true).ok());
}

TEST(ProgressTest, EachWarningIsPrintedOnce) {
  for (const ProgressMode mode : {ProgressMode::kPlain, ProgressMode::kLive}) {
    std::ostringstream out;
    ProgressPrinter printer(mode, &out);
    JobStatus status = Running();
    status.add_warnings("value 'x' never occurs");
    printer.Update(status);
    printer.Update(status);
    status.set_state(JOB_DONE);
    *status.mutable_result()->mutable_warnings() = status.warnings();
    status.mutable_result()->add_warnings("late");
    printer.Finish(status);
    const std::string text = out.str();
    const size_t first = text.find("warning: value 'x' never occurs\n");
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("warning: value 'x'", first + 1), std::string::npos) << text;
    EXPECT_THAT(text, HasSubstr("warning: late\n"));
  }
}

TEST(ProgressTest, WithoutEscapesBlanksEraseTheLiveLine) {
  std::ostringstream out;
  ProgressPrinter printer(ProgressMode::kLive, &out, /*escapes=*/false);
  JobStatus status = Running();
  printer.Update(status);
  const size_t wide = out.str().size() - out.str().rfind('\r') - 1;
  status.set_state(JOB_QUEUED);
  status.clear_staleness();
  printer.Update(status);
  const std::string last = out.str().substr(out.str().rfind('\r') + 1);
  EXPECT_EQ(last.size(), wide) << "blanks cover the rest of the longer line";
  EXPECT_EQ(last.back(), ' ');
  printer.Note("note");
  EXPECT_THAT(out.str(), AllOf(HasSubstr(" \rnote\n"), Not(HasSubstr("\x1b"))));
}

TEST(ProgressTest, DumbTerminalHasNoLiveLineAndNoColorHasNoEscapes) {
  EXPECT_TRUE(ScreenOf(true, "xterm", nullptr).live);
  EXPECT_TRUE(ScreenOf(true, "xterm", "").escapes);
  EXPECT_TRUE(ScreenOf(true, nullptr, nullptr).escapes);
  EXPECT_FALSE(ScreenOf(true, "dumb", nullptr).live);
  EXPECT_FALSE(ScreenOf(true, "dumb", nullptr).escapes);
  EXPECT_TRUE(ScreenOf(true, "xterm", "1").live);
  EXPECT_FALSE(ScreenOf(true, "xterm", "1").escapes);
  EXPECT_FALSE(ScreenOf(false, "xterm", nullptr).live);
}

TEST(ProgressTest, UndefinedAucIsADashEverywhere) {
  JobStatus status = Running();
  status.mutable_epochs_log(0)->mutable_eval()->clear_auc();
  EXPECT_THAT(LiveLine(status, 500), HasSubstr("| AUC - |"));
  EXPECT_THAT(LiveLine(status, 79), HasSubstr(" AUC - "));
  std::ostringstream out;
  ProgressPrinter(ProgressMode::kPlain, &out).Update(status);
  EXPECT_THAT(out.str(), HasSubstr(", AUC -, log loss"));
}

TEST(StatusTextTest, MembersTablesQueueAndWaitsAreShown) {
  ClusterStatus status;
  status.set_name("local");
  MemberStatus* pserver = status.add_members();
  pserver->set_role(ROLE_PSERVER);
  pserver->set_rank(1);
  pserver->set_address("127.0.0.1:7001");
  HostedJob* hosted = pserver->add_hosted();
  hosted->set_job_id("adult-1");
  hosted->set_waiting_for("commit 17 of rank 1 (2.1 s)");
  hosted->set_slowest_rank(1);
  hosted->set_slowest_wait_s(2.5);
  TableStatus* table = hosted->add_tables();
  table->set_name("embedding");
  table->set_kind(TableConfig::SPARSE);
  table->set_shards(16);
  table->set_rows(12345);
  *status.add_jobs() = Running();
  WorkerProgress* worker = status.mutable_jobs(0)->add_workers();
  worker->mutable_stages()->set_compute(12.34);
  worker->mutable_stages()->set_push_wait(0.5);
  worker->set_batches_ready(3);
  worker->set_batches_capacity(4);
  worker->set_step(120);
  DeviceUse* use = worker->mutable_device();
  use->set_busy_share(0.83);
  use->set_bytes_in_use(1 << 20);
  use->set_bytes_limit(2 << 20);
  use->set_steps_ahead(99);
  use->set_no_room_ahead(true);
  JobStatus* queued = status.add_jobs();
  queued->set_job_id("adult-2");
  queued->set_state(JOB_QUEUED);
  queued->set_queue_position(0);
  queued->set_worker_num(4);
  EXPECT_THAT(
      StatusText(status),
      AllOf(HasSubstr("DEAD"), HasSubstr("127.0.0.1:7001"), HasSubstr("16 shards"),
            HasSubstr("12,345 rows"), HasSubstr("commit 17 of rank 1 (2.1 s)"),
            HasSubstr("waited 2.5 s"), HasSubstr("adult-2 queued"), HasSubstr("compute 12.3 s"),
            HasSubstr("push wait 0.5 s"), HasSubstr("3 of 4 batches"), HasSubstr("GPU 83%"),
            HasSubstr("1.0 MiB of 2.0 MiB"), HasSubstr("99 of 120 batches"), HasSubstr("no room"),
            HasSubstr("place 1"), HasSubstr("4 workers")));
}

TEST(ScoreProgressTest, PlainLineIsPrintedOncePerInterval) {
  FakeClock clock;
  std::ostringstream out;
  ScoreProgress progress(ProgressMode::kPlain, &clock, &out);
  progress.Update(10);
  EXPECT_EQ(out.str(), "");
  clock.Advance(ScoreProgress::kPlainEvery);
  progress.Update(5000);
  EXPECT_EQ(out.str(), "scored 5,000 lines, 500 lines/s\n");
  progress.Update(6000);
  progress.Clear();
  EXPECT_EQ(out.str(), "scored 5,000 lines, 500 lines/s\n");
}

TEST(ScoreProgressTest, LiveLineIsRewrittenAndRemoved) {
  FakeClock clock;
  std::ostringstream out;
  {
    ScoreProgress progress(ProgressMode::kLive, &clock, &out);
    clock.Advance(absl::Seconds(1));
    progress.Update(1000);
    EXPECT_EQ(out.str(), "\rscored 1,000 lines, 1,000 lines/s");
    clock.Advance(absl::Seconds(9));
    progress.Update(1000);
    const std::string last = "scored 1,000 lines, 100 lines/s";
    EXPECT_EQ(out.str(), "\rscored 1,000 lines, 1,000 lines/s\r" + last + "  ");
    out.str("");
  }
  EXPECT_EQ(out.str(), "\r" + std::string(31, ' ') + "\r");
}

}  // namespace
}  // namespace sluice::cli

#include "cli/jobs/watch_job.h"

#include <sstream>

#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

// Answers WatchJob from `answers`, repeating the last one, and refuses all other calls.
class WatchedScheduler : public RefusingScheduler {
 public:
  std::vector<absl::StatusOr<JobState>> answers;
  JobState after_cancel = JOB_CANCELLED;
  int cancels = 0;
  absl::Status cancel_error;
  std::string failure;  // of the last CancelJob
  uint64_t steps = 0;   // of the job
  std::string phase = "train";
  uint64_t checkpoint_step = 0;  // of its newest checkpoint
  int answers_until_saved = 0;   // one of `steps` is being written
  int saves_wanted = 0;
  int questions_until_saved = 2;  // after the request
  std::string save_error;

  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request) override {
    const absl::StatusOr<JobState> answer = answers[std::min(asked_++, answers.size() - 1)];
    if (!answer.ok()) return answer.status();
    WatchJobReply reply;
    reply.mutable_status()->set_job_id(request.job_id());
    reply.mutable_status()->set_state(cancels > 0 ? after_cancel : *answer);
    reply.mutable_status()->set_global_step(steps);
    reply.mutable_status()->set_phase(phase);
    CheckpointStatus* const checkpoint = reply.mutable_status()->mutable_checkpoint();
    if (answers_until_saved > 0 && --answers_until_saved == 0) checkpoint_step = steps;
    checkpoint->set_step(checkpoint_step);
    if (answers_until_saved > 0) checkpoint->set_doing("writing");
    return reply;
  }
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest& request) override {
    CheckpointJobReply reply;
    reply.set_number(7);
    if (request.number() == 0) {
      ++saves_wanted;
      return reply;
    }
    EXPECT_EQ(request.number(), 7u);
    EXPECT_EQ(cancels, 0);
    reply.set_done(--questions_until_saved == 0);
    reply.set_error(save_error);
    return reply;
  }
  absl::Status CancelJob(const CancelJobRequest& request) override {
    failure = request.failure();
    if (!cancel_error.ok()) return cancel_error;
    ++cancels;
    if (!failure.empty()) after_cancel = JOB_FAILED;
    return absl::OkStatus();
  }

 private:
  size_t asked_ = 0;
};

class WatchJobTest : public ::testing::Test {
 protected:
  WatchJobTest() {
    options_.clock = Clock::Real();
    options_.client = &scheduler_;
    options_.job_id = "job-1";
    options_.printer = &printer_;
    options_.grace = absl::ZeroDuration();
    options_.unreachable_after = absl::ZeroDuration();
  }
  WatchedScheduler scheduler_;
  std::ostringstream out_;
  ProgressPrinter printer_{ProgressMode::kPlain, &out_};
  WatchOptions options_;
};

TEST_F(WatchJobTest, EndsWithTheJobAndItsCode) {
  scheduler_.answers = {JOB_QUEUED, JOB_RUNNING, JOB_DONE};
  const auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->state(), JOB_DONE);
  EXPECT_EQ(ReportEnd(status), 0);
  EXPECT_THAT(out_.str(), HasSubstr("job-1: queued\n"));
  scheduler_.answers = {JOB_FAILED};
  EXPECT_EQ(ReportEnd(WatchUntilEnd(options_)), 1);
}

TEST_F(WatchJobTest, SilentSchedulerEndsTheWatchAsUnreachable) {
  scheduler_.answers = {absl::UnavailableError("gone")};
  const auto status = WatchUntilEnd(options_);
  EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReportEnd(status), 3);
}

TEST_F(WatchJobTest, ShortSilenceIsForgiven) {
  options_.unreachable_after = absl::Seconds(20);
  scheduler_.answers = {absl::UnavailableError("busy"), JOB_DONE};
  EXPECT_EQ(ReportEnd(WatchUntilEnd(options_)), 0);
}

TEST_F(WatchJobTest, UnknownJobEndsTheWatchAtOnce) {
  options_.unreachable_after = absl::Seconds(20);
  scheduler_.answers = {absl::NotFoundError("no job job-1")};
  EXPECT_EQ(WatchUntilEnd(options_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WatchJobTest, JobUnknownToARestartedSchedulerIsLost) {
  scheduler_.answers = {JOB_RUNNING, absl::NotFoundError("no job job-1")};
  const auto status = WatchUntilEnd(options_);
  EXPECT_TRUE(absl::IsAborted(status.status())) << status.status();
  EXPECT_EQ(ReportEnd(status), kJobFailed);
}

TEST_F(WatchJobTest, DeadProcessEndsTheWatchAndIsNamed) {
  scheduler_.answers = {JOB_RUNNING};
  options_.check_cluster = [] {
    return absl::InternalError("pserver 1 was killed; the end of its log: x");
  };
  options_.hopeless = [] { return true; };
  options_.grace = absl::Hours(1);
  scheduler_.cancel_error = absl::UnavailableError("nobody answers");
  const auto status = WatchUntilEnd(options_);
  EXPECT_THAT(std::string(status.status().message()), HasSubstr("pserver 1 was killed"));
  EXPECT_EQ(ReportEnd(status), 1);
}

TEST_F(WatchJobTest, AJobThatCannotContinueFailsAtTheScheduler) {
  scheduler_.answers = {JOB_RUNNING};
  options_.check_cluster = [] { return absl::InternalError("worker 1 died 5 times; its log: x"); };
  options_.hopeless = [] { return true; };
  options_.grace = absl::Hours(1);
  const auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), JOB_FAILED);
  EXPECT_THAT(scheduler_.failure, HasSubstr("worker 1 died 5 times"));
  EXPECT_EQ(ReportEnd(status), kJobFailed);
}

TEST_F(WatchJobTest, MessageOfAFailedJobSaysHowItsProcessEnded) {
  scheduler_.answers = {JOB_FAILED};
  options_.check_cluster = [] {
    return absl::InternalError("worker 1 was killed by signal 9; the end of its log: x");
  };
  const auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(status->message(), testing::EndsWith("; worker 1 was killed by signal 9"));
  scheduler_.answers = {JOB_DONE};
  EXPECT_EQ(WatchUntilEnd(options_)->message(), "");
}

TEST_F(WatchJobTest, AnExplanationIsAddedUnlessTheMessageHasIt) {
  scheduler_.answers = {JOB_FAILED};
  options_.check_cluster = [] { return absl::OkStatus(); };
  std::string asked;
  options_.explain = [&asked](const std::string& message) {
    asked += "?" + message;
    return "sluice-worker rank 1 (pid 7) was killed by signal 9";
  };
  const auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(asked, "?");
  EXPECT_THAT(status->message(), testing::EndsWith("rank 1 (pid 7) was killed by signal 9"));
  options_.explain = [](const std::string&) { return ""; };
  EXPECT_EQ(WatchUntilEnd(options_)->message(), "");
}

TEST_F(WatchJobTest, TellsOnceThatTheJobHasLeftTheQueue) {
  scheduler_.answers = {JOB_QUEUED,     JOB_QUEUED,  JOB_STARTING,
                        JOB_RECOVERING, JOB_RUNNING, JOB_DONE};
  int started = 0;
  options_.on_started = [&started] { ++started; };
  EXPECT_EQ(ReportEnd(WatchUntilEnd(options_)), 0);
  EXPECT_EQ(started, 1);
  EXPECT_THAT(out_.str(), HasSubstr("job-1: recovering\n"));
}

TEST_F(WatchJobTest, InterruptCancelsOnceOrOnlyStopsWatching) {
  scheduler_.answers = {JOB_RUNNING};
  options_.interrupted = [] { return true; };
  auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->state(), JOB_RUNNING);
  EXPECT_EQ(scheduler_.cancels, 0);
  options_.cancel_on_interrupt = true;
  options_.grace = absl::Seconds(20);
  status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->state(), JOB_CANCELLED);
  EXPECT_EQ(scheduler_.cancels, 1);
  EXPECT_EQ(scheduler_.saves_wanted, 0) << "it has not made a step";
  EXPECT_THAT(out_.str(), HasSubstr("not finished a step"));
}

TEST_F(WatchJobTest, AnInterruptedJobSavesACheckpointBeforeItIsCancelled) {
  scheduler_.answers = {JOB_RUNNING};
  scheduler_.steps = 5;
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.grace = absl::Seconds(20);
  const auto status = WatchUntilEnd(options_);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->state(), JOB_CANCELLED);
  EXPECT_EQ(scheduler_.saves_wanted, 1);
  EXPECT_EQ(scheduler_.questions_until_saved, 0);
  EXPECT_EQ(scheduler_.cancels, 1);
  EXPECT_THAT(out_.str(), testing::Not(HasSubstr("no checkpoint")));
}

TEST_F(WatchJobTest, AnEvaluationNeedsNoFurtherCheckpointThanThatOfItsEpoch) {
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.grace = absl::Seconds(20);
  scheduler_.answers = {JOB_RUNNING};
  scheduler_.steps = 5;
  scheduler_.phase = "eval";
  for (const bool written : {true, false}) {
    scheduler_.cancels = 0;
    scheduler_.checkpoint_step = written ? 5 : 4;
    scheduler_.answers_until_saved = written ? 0 : 3;
    EXPECT_EQ(WatchUntilEnd(options_)->state(), JOB_CANCELLED);
    EXPECT_EQ(scheduler_.saves_wanted, 0);
    EXPECT_EQ(scheduler_.cancels, 1);
    EXPECT_THAT(out_.str(), testing::Not(HasSubstr("no checkpoint")));
    EXPECT_EQ(out_.str().find("saves a checkpoint first") == std::string::npos, written);
  }
  // An older one lacks steps, and in training the newest one soon does.
  for (const char* phase : {"eval", "train"}) {
    scheduler_.cancels = 0;
    scheduler_.saves_wanted = 0;
    scheduler_.questions_until_saved = 2;
    scheduler_.phase = phase;
    scheduler_.checkpoint_step = scheduler_.phase == "eval" ? 4 : 5;
    EXPECT_EQ(WatchUntilEnd(options_)->state(), JOB_CANCELLED);
    EXPECT_EQ(scheduler_.saves_wanted, 1) << phase;
  }
}

TEST_F(WatchJobTest, ACheckpointThatFailsOrTakesTooLongDoesNotHoldTheEndUp) {
  scheduler_.answers = {JOB_RUNNING};
  scheduler_.steps = 5;
  scheduler_.save_error = "disk full";
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.grace = absl::Seconds(20);
  EXPECT_EQ(WatchUntilEnd(options_)->state(), JOB_CANCELLED);
  EXPECT_THAT(out_.str(), HasSubstr("disk full"));
  for (const bool impatient : {false, true}) {
    scheduler_.cancels = 0;
    scheduler_.questions_until_saved = 1'000'000;
    if (!impatient) options_.save_grace = absl::ZeroDuration();
    if (impatient) options_.save_grace = absl::Hours(1);
    options_.impatient = [impatient] { return impatient; };
    EXPECT_EQ(WatchUntilEnd(options_)->state(), JOB_CANCELLED);
    EXPECT_THAT(out_.str(), HasSubstr(impatient ? "did not wait" : "took longer"));
  }
}

TEST_F(WatchJobTest, AJobThatKeepsNoCheckpointsSaysSo) {
  scheduler_.answers = {JOB_RUNNING};
  scheduler_.steps = 5;
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.saves_nothing = "checkpoint.keep is 0";
  options_.grace = absl::Seconds(20);
  EXPECT_EQ(WatchUntilEnd(options_)->state(), JOB_CANCELLED);
  EXPECT_EQ(scheduler_.saves_wanted, 0);
  EXPECT_THAT(out_.str(), HasSubstr("checkpoint.keep is 0"));
}

TEST_F(WatchJobTest, ASchedulerThatWasAwayIsToldAgain) {
  scheduler_.answers = {JOB_RUNNING, absl::UnavailableError("restarting"), JOB_RUNNING};
  scheduler_.after_cancel = JOB_RUNNING;
  options_.unreachable_after = absl::Seconds(20);
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.grace = absl::Seconds(3);
  options_.save_grace = absl::ZeroDuration();
  ASSERT_TRUE(WatchUntilEnd(options_).ok());
  EXPECT_EQ(scheduler_.cancels, 2);
}

TEST_F(WatchJobTest, WatchEndsWhenACancelHasNoEffect) {
  scheduler_.answers = {JOB_RUNNING};
  scheduler_.after_cancel = JOB_RUNNING;
  options_.interrupted = [] { return true; };
  options_.cancel_on_interrupt = true;
  options_.save_grace = absl::ZeroDuration();
  EXPECT_EQ(ReportEnd(WatchUntilEnd(options_)), 1);
}

}  // namespace
}  // namespace sluice::cli

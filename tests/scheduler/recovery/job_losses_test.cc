#include "scheduler/recovery/job_losses.h"

#include <gmock/gmock.h>

#include "scheduler/registry/job_directory.h"
#include "scheduler/registry/report_requests.h"
#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A running job of three workers and two pservers, and one more worker.
class JobLossesTest : public testing::Test {
 protected:
  JobLossesTest() {
    for (const uint32_t rank : {0, 1}) pservers_.push_back(Join(&members_, ROLE_PSERVER, rank));
    for (const uint32_t rank : {0, 1, 2}) {
      workers_.push_back(Join(&members_, ROLE_WORKER, rank));
      workers_.back()->polled = true;
    }
    job_->MutableConfigForTest()->set_evaluate_only(false);
    job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
    job_->pservers.Choose({0, 1});
    BeginAttempt();
  }
  void BeginAttempt() {
    ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
    SetRunning(job_.get());
    next_attempt_.Forget(job_.get());
  }
  static absl::Status Place(const std::vector<std::string>& pservers, JobSpec* spec) {
    spec->mutable_route()->set_generation(spec->route().generation() + 1);
    spec->mutable_route()->mutable_pservers()->Assign(pservers.begin(), pservers.end());
    return absl::OkStatus();
  }
  Member* Spare() {
    workers_.push_back(Join(&members_, ROLE_WORKER, 3));
    workers_.back()->polled = true;
    return workers_.back();
  }
  absl::Status Lose(Member* member) {
    members_.MarkGone(member, "killed");
    return losses_.Lose(job_.get(), *member, now_);
  }
  void WorkersKeepTables() {
    job_->attempt.MutableSpecForTest()->add_tables()->set_update_at(TableConfig::COLLECTIVE);
  }
  // A rank says that its group has failed.
  absl::Status FailGroup(uint32_t rank = 0) {
    const RankSlot& slot = job_->ranks.slots()[rank];
    RankGroupReport report;
    report.set_job_id("job");
    report.set_rank(rank);
    report.set_incarnation(slot.incarnation());
    report.set_generation(job_->spec().route().generation());
    report.set_error("the connection to rank 1 broke");
    return losses_.TakeGroup(*members_.ById(slot.member_id()), report, job_.get(), now_);
  }
  // The job goes back to its newest checkpoint, and its next attempt runs.
  void ExpectGoesBack() {
    EXPECT_EQ(job_->state(), JOB_RECOVERING);
    EXPECT_FALSE(job_->run() != nullptr);
    for (RankSlot& slot : job_->ranks.slots()) attempts_.Release(job_.get(), &slot);
    BeginAttempt();
  }

  Membership members_{Membership::Options()};
  JobQueue queue_;
  JobDirectory jobs_;
  ReportRequests requests_;
  PauseDetector pauses_{absl::Seconds(10), absl::UnixEpoch()};
  CoreEffects effects_;
  CheckpointLifecycle checkpoints_{absl::Seconds(30), {&members_, &pauses_, &effects_}};
  AttemptMembers attempts_{{/*first_id=*/100, Place}, {&members_, &queue_, &effects_}};
  JobAdoption adoption_{absl::Seconds(10),
                        {&members_, &jobs_, &pauses_, &effects_, &checkpoints_, &attempts_}};
  NextAttempt next_attempt_{
      absl::Seconds(30),
      {&members_, &queue_, &requests_, &pauses_, &effects_, &checkpoints_, &attempts_, &adoption_}};
  AttemptPlans plans_{{&members_, &jobs_, &effects_, &checkpoints_, &attempts_}};
  JobLosses losses_{absl::Seconds(30),
                    {&members_, &queue_, &pauses_, &effects_, &checkpoints_, &attempts_, &adoption_,
                     &next_attempt_, &plans_}};
  std::unique_ptr<Job> job_ = QueuedFor("job", /*workers=*/3);
  std::vector<Member*> pservers_, workers_;
  const absl::Time now_ = absl::UnixEpoch();
};

TEST_F(JobLossesTest, ALostRankIsVacantUntilAnotherWorkerTakesIt) {
  const uint64_t generation = job_->spec().route().generation();
  ASSERT_TRUE(Lose(workers_[1]).ok());
  EXPECT_EQ(job_->state(), JOB_RUNNING);
  EXPECT_EQ(job_->recovery.counts().worker_losses(), 1);
  EXPECT_EQ(job_->ranks.vacant().count(1), 1);
  EXPECT_EQ(job_->spec().route().generation(), generation + 1) << "its earlier life is fenced";
  ASSERT_TRUE(losses_.Advance(job_.get(), now_).ok());
  EXPECT_EQ(job_->ranks.slots()[1].member_id(), 0);
  const Member* const spare = Spare();
  ASSERT_TRUE(losses_.Advance(job_.get(), now_).ok());
  EXPECT_EQ(job_->ranks.slots()[1].member_id(), spare->id);
}

TEST_F(JobLossesTest, ARankThatNobodyTakesInTimeIsAnError) {
  ASSERT_TRUE(Lose(workers_[1]).ok());
  ASSERT_TRUE(losses_.Advance(job_.get(), now_ + absl::Seconds(29)).ok());
  const absl::Status late = losses_.Advance(job_.get(), now_ + absl::Seconds(30));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
}

TEST_F(JobLossesTest, TheLossOfAWorkerThatWasOnlyTakenForARankIsNotCounted) {
  ASSERT_TRUE(Lose(workers_[1]).ok());
  Member* const spare = Spare();
  ASSERT_TRUE(losses_.Advance(job_.get(), now_).ok());
  ASSERT_TRUE(Lose(spare).ok());
  EXPECT_EQ(job_->recovery.counts().worker_losses(), 1);
  EXPECT_EQ(job_->ranks.vacant().count(1), 1);
}

TEST_F(JobLossesTest, ALossBeyondTheLimitIsAnErrorThatNamesTheMember) {
  job_->MutableConfigForTest()->mutable_recovery()->set_max_losses(1);
  ASSERT_TRUE(Lose(workers_[1]).ok());
  const absl::Status lost = Lose(workers_[2]);
  EXPECT_TRUE(absl::IsAborted(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("worker 2"));
}

TEST_F(JobLossesTest, ASyncJobThatLosesAPserverGoesBack) {
  ASSERT_TRUE(Lose(pservers_[1]).ok());
  EXPECT_EQ(job_->recovery.counts().pserver_losses(), 1);
  EXPECT_EQ(job_->state(), JOB_RECOVERING);
}

TEST_F(JobLossesTest, AnotherProcessTakesOverTheShardsOfAnAsyncJob) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(true);
  ASSERT_TRUE(Lose(pservers_[1]).ok());
  EXPECT_EQ(job_->state(), JOB_RUNNING);
  EXPECT_EQ(job_->pservers.vacant().count(1), 1);
  // Nobody comes while the pserver drains.
  members_.Drain(1);
  ASSERT_TRUE(losses_.LoseDraining(job_.get(), now_).ok());
  EXPECT_EQ(job_->state(), JOB_RECOVERING);
  EXPECT_TRUE(job_->pservers.vacant().empty());
}

TEST_F(JobLossesTest, AJobThatShrinksGoesBackWithFewerWorkersWhenItCannotContinueInPlace) {
  job_->MutableConfigForTest()->mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(
      SyncConfigs::SHRINK);
  ASSERT_TRUE(Lose(workers_[1]).ok());  // in INDEX
  EXPECT_EQ(job_->state(), JOB_RECOVERING);
  EXPECT_EQ(job_->spec().worker_num(), 2);
  EXPECT_EQ(job_->warnings().size(), 1);
}

TEST_F(JobLossesTest, AJobThatIsOverHasNoVacantPlaces) {
  ASSERT_TRUE(Lose(workers_[1]).ok());
  const Member* const spare = Spare();
  ASSERT_TRUE(losses_.Advance(job_.get(), now_).ok());
  job_->course.End(JOB_CANCELLED, "", absl::UnixEpoch());
  losses_.Forget(job_.get());
  EXPECT_TRUE(job_->complete());
  EXPECT_TRUE(spare->free());
}

TEST_F(JobLossesTest, AGroupThatFailsWithoutALossTakesTheJobBackTwiceInARow) {
  WorkersKeepTables();
  for (uint32_t i = 0; i < kMaxGroupFaults; ++i) {
    ASSERT_TRUE(FailGroup(i).ok());
    EXPECT_THAT(job_->recovery.counts().last(), HasSubstr("the connection to rank 1 broke"));
    ExpectGoesBack();
  }
  const absl::Status last = FailGroup();
  EXPECT_TRUE(absl::IsAborted(last)) << last;
  EXPECT_THAT(std::string(last.message()), HasSubstr("worker 0"));
  EXPECT_THAT(std::string(last.message()), HasSubstr("the connection to rank 1 broke"));
  EXPECT_EQ(job_->state(), JOB_RUNNING) << "the caller ends it";
}

TEST_F(JobLossesTest, AFailureOfAGroupAfterAnotherLossCountsAnew) {
  WorkersKeepTables();
  for (uint32_t i = 0; i < 3 * kMaxGroupFaults; ++i) {
    ASSERT_TRUE(FailGroup().ok()) << i;
    ExpectGoesBack();
    if (i % kMaxGroupFaults == 1) {
      Member lost = *workers_[1];
      lost.why_gone = "killed";
      job_->recovery.CountLoss(lost, now_);
    }
  }
}

TEST_F(JobLossesTest, AJobThatSurvivesNoLossesSurvivesNoFailureOfItsGroup) {
  WorkersKeepTables();
  job_->MutableConfigForTest()->mutable_recovery()->set_max_losses(0);
  EXPECT_TRUE(absl::IsAborted(FailGroup()));
}

TEST_F(JobLossesTest, ReportsAboutAGroupThatTheJobDoesNotHaveChangeNothing) {
  ASSERT_TRUE(FailGroup().ok()) << "pservers keep all tables";
  EXPECT_EQ(job_->state(), JOB_RUNNING);
  WorkersKeepTables();
  RankGroupReport report;
  report.set_job_id("job");
  report.set_incarnation(job_->ranks.slots()[0].incarnation() - 1);  // an earlier life
  report.set_generation(job_->spec().route().generation());
  report.set_error("the connection to rank 1 broke");
  ASSERT_TRUE(losses_.TakeGroup(*workers_[0], report, job_.get(), now_).ok());
  EXPECT_EQ(job_->state(), JOB_RUNNING);
}

}  // namespace
}  // namespace sluice

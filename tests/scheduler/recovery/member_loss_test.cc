#include "scheduler/recovery/member_loss.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

class MemberLossTest : public testing::Test {
 protected:
  MemberLossTest() : job_(QueuedFor("a")) {
    worker_ = Join(&members_, ROLE_WORKER, 3);
    Allocate(job_.get(), worker_);
    members_.MarkGone(worker_, "no heartbeat for 10 s");
  }
  // The rank is vacant, and the worker is taken for it.
  void Vacate() {
    job_->ranks.Lose(0, /*incarnation=*/600, /*begun=*/true, "killed", absl::UnixEpoch());
    job_->ranks.Take(0, worker_->id, worker_->self.rank());
  }
  LossDecision::Kind Decide() { return DecideMemberLoss(*job_, *worker_, now_).kind; }

  Membership members_{Membership::Options()};
  std::unique_ptr<Job> job_;
  Member* worker_ = nullptr;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(MemberLossTest, TheRankOfALostWorkerIsReplaced) {
  job_->course.Start();
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
  SetRunning(job_.get());
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
  EndPhase(job_.get());
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
}

TEST_F(MemberLossTest, WorkersKeepTheTablesThatTheJobHasThere) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
  job_->MutableConfigForTest()->set_evaluate_only(false);
  EXPECT_FALSE(WorkersKeepTables(*job_));
  TableConfig* const table = job_->attempt.MutableSpecForTest()->add_tables();
  table->set_update_at(TableConfig::PSERVER);
  EXPECT_FALSE(WorkersKeepTables(*job_));
  table->set_update_at(TableConfig::COLLECTIVE);
  EXPECT_TRUE(WorkersKeepTables(*job_));
  job_->MutableConfigForTest()->set_evaluate_only(true);
  EXPECT_FALSE(WorkersKeepTables(*job_)) << "nothing is trained";
}

TEST_F(MemberLossTest, NobodyHoldsTheDenseTablesOfAModelThatHasNone) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
  job_->MutableConfigForTest()->mutable_strategy()->mutable_sync_configs()->set_dense(
      SyncConfigs::COLLECTIVE);
  job_->MutableConfigForTest()->set_evaluate_only(false);
  job_->attempt.MutableSpecForTest()->add_tables()->set_update_at(TableConfig::PSERVER);
  job_->attempt.MutableSpecForTest()->mutable_route()->add_tables()->add_owner(0);
  SetRunning(job_.get());
  EXPECT_FALSE(WorkersKeepTables(*job_));
  EXPECT_FALSE(RanksCloseSteps(*job_));
  // The only other rank has been lost once before, and holds no table.
  Allocate(job_.get(), Join(&members_, ROLE_WORKER, 4));
  job_->ranks.slots()[1] = RankSlot(job_->ranks.slots()[1].member_id(), 4, 501, /*rejoins=*/true);
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
  job_->attempt.MutableSpecForTest()->mutable_tables(0)->set_update_at(TableConfig::COLLECTIVE);
  EXPECT_EQ(Decide(), LossDecision::kRollback);
}

TEST_F(MemberLossTest, TheLossOfAPserverRollsASyncJobBack) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
  SetRunning(job_.get());
  Member* const pserver = Join(&members_, ROLE_PSERVER, 0);
  members_.MarkGone(pserver, "killed");
  EXPECT_EQ(DecideMemberLoss(*job_, *pserver, now_).kind, LossDecision::kRollback);
}

TEST_F(MemberLossTest, InAsyncAndGeoOnlyTheShardsOfALostPserverGoBack) {
  Member* const pserver = Join(&members_, ROLE_PSERVER, 0);
  members_.MarkGone(pserver, "killed");
  const auto decide = [&] { return DecideMemberLoss(*job_, *pserver, now_).kind; };
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(true);
  job_->course.Start();
  EXPECT_EQ(decide(), LossDecision::kRollback) << "no attempt is under way";
  SetRunning(job_.get());
  EXPECT_EQ(decide(), LossDecision::kTakeOver);
  Vacate();
  EXPECT_EQ(decide(), LossDecision::kRollback) << "nobody knows yet where the rank continues";
  job_->ranks.Settle(0, 0);
  EXPECT_EQ(decide(), LossDecision::kTakeOver);
  job_->ranks.ClearVacant();
  // A second one.
  job_->pservers.Serve({pserver->id, 12345});
  job_->pservers.Lose(1, PserverVacancy());
  EXPECT_EQ(decide(), LossDecision::kTakeOver);
  EXPECT_EQ(Decide(), LossDecision::kRollback) << "restored shards may not know the rank's life";
  job_->pservers.EndAttempt();
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
  EXPECT_EQ(decide(), LossDecision::kRollback);
}

TEST_F(MemberLossTest, AJobThatAwaitsMembersKeepsWaiting) {
  job_->course.Recover();
  ASSERT_TRUE(job_->awaits_members());
  EXPECT_EQ(Decide(), LossDecision::kRollback);
}

TEST_F(MemberLossTest, TheLossAfterTheLastThatIsAllowedIsFatal) {
  SetRunning(job_.get());
  job_->MutableConfigForTest()->mutable_recovery()->set_max_losses(2);
  for (int loss = 0; loss < 2; ++loss) {
    EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
    job_->recovery.CountLoss(*worker_, absl::UnixEpoch());
  }
  EXPECT_EQ(Decide(), LossDecision::kFails);
  EXPECT_THAT(DecideMemberLoss(*job_, *worker_, now_).message, testing::HasSubstr("max_losses"));
  Vacate();
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank) << "the worker had no assignment yet";
  job_->ranks.ClearVacant();
  job_->MutableConfigForTest()->clear_recovery();
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank);
}

TEST_F(MemberLossTest, OnlyLossesOfTheLastDayCount) {
  SetRunning(job_.get());
  job_->MutableConfigForTest()->mutable_recovery()->set_max_losses(2);
  // One loss every 13 hours, for a month.
  for (int loss = 0; loss < 60; ++loss) {
    EXPECT_EQ(Decide(), LossDecision::kReplaceRank) << loss;
    job_->recovery.CountLoss(*worker_, now_);
    now_ += absl::Hours(13);
  }
  EXPECT_EQ(job_->recovery.losses(), 60u);
  EXPECT_EQ(job_->recovery.RecentLosses(now_), 1u);
  EXPECT_LE(job_->recovery.losses_at().size(), 2u) << "older ones are dropped";
  now_ -= absl::Hours(12);
  job_->recovery.CountLoss(*worker_, now_);
  EXPECT_EQ(Decide(), LossDecision::kFails) << "three within a day";
}

TEST_F(MemberLossTest, AJobThatMayLoseNobodyFailsAndNamesTheMember) {
  SetRunning(job_.get());
  job_->MutableConfigForTest()->mutable_recovery()->set_max_losses(0);
  EXPECT_EQ(Decide(), LossDecision::kFails);
  EXPECT_THAT(DecideMemberLoss(*job_, *worker_, now_).message,
              AllOf(testing::HasSubstr("worker 3"), testing::HasSubstr("no heartbeat for 10 s")));
}

TEST_F(MemberLossTest, AJobContinuesWhenItsPhasesAreDone) {
  SetRunning(job_.get());
  EndPhase(job_.get());
  EndPhase(job_.get());
  ASSERT_TRUE(job_->finishing());
  EXPECT_EQ(Decide(), LossDecision::kGoesOn);
}

TEST_F(MemberLossTest, AnEndedJobKeepsItsOutcome) {
  SetRunning(job_.get());
  job_->course.End(JOB_CANCELLED, "", absl::UnixEpoch());
  EXPECT_EQ(Decide(), LossDecision::kGoesOn);
}

TEST_F(MemberLossTest, ASyncJobMayShrinkAsLongAsItHasOtherWorkers) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(false);
  job_->MutableConfigForTest()->mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(
      SyncConfigs::SHRINK);
  SetRunning(job_.get());
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank) << "it is the only one";
  job_->attempt.MutableSpecForTest()->set_worker_num(2);
  EXPECT_EQ(Decide(), LossDecision::kShrink);
  Member lost = *worker_;
  EXPECT_EQ(DecideMemberLoss(*job_, lost, now_, /*spare=*/true).kind, LossDecision::kReplaceRank);
  job_->ranks.BeginRemoval().ranks = {1};
  EXPECT_EQ(Decide(), LossDecision::kReplaceRank) << "the other one is being left out";
  job_->ranks.EndRemoval();
  lost.left = true;
  EXPECT_EQ(DecideMemberLoss(*job_, lost, now_).kind, LossDecision::kReplaceRank);
  job_->attempt.End();
  job_->course.Recover();
  EXPECT_EQ(Decide(), LossDecision::kShrink) << "more than one loss";
  Vacate();
  EXPECT_NE(Decide(), LossDecision::kShrink) << "the worker had no assignment yet";
  job_->ranks.ClearVacant();
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(true);
  EXPECT_FALSE(ShrinksOnLoss(*job_));
}

TEST_F(MemberLossTest, NobodyWaitsForADrainingPserver) {
  job_->MutableConfigForTest()->mutable_strategy()->set_a_sync(true);
  SetRunning(job_.get());
  Member* const pserver = Join(&members_, ROLE_PSERVER, 0);
  members_.Drain(0);
  members_.MarkGone(pserver, "killed");
  EXPECT_EQ(DecideMemberLoss(*job_, *pserver, now_).kind, LossDecision::kRollback);
}

}  // namespace
}  // namespace sluice

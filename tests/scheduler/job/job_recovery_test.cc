#include "scheduler/job/job_recovery.h"

#include <gmock/gmock.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Decision = JobRecovery::Decision;

constexpr absl::Duration kJobRecoveryWait = absl::Seconds(30);
const absl::Time kLoss = absl::UnixEpoch() + absl::Hours(1);

// A job of two pservers and two workers that awaits members.
class JobRecoveryTest : public testing::Test {
 protected:
  JobRecoveryTest() : job_(QueuedFor("a", /*workers=*/2)) {
    for (const uint32_t rank : {0, 1}) {
      pservers_[rank] = Join(&members_, ROLE_PSERVER, rank);
      workers_[rank] = Join(&members_, ROLE_WORKER, rank);
      AddPserver(job_.get(), *pservers_[rank]);
      Allocate(job_.get(), workers_[rank]);
    }
    job_->pservers.Choose({0, 1});
    job_->course.Recover();
  }
  void Lose(Member* member) {
    members_.MarkGone(member, "no heartbeat for 10 s");
    job_->recovery.CountLoss(*member, kLoss);
  }
  void StopWorkers() {
    for (RankSlot& slot : job_->ranks.slots()) slot.Release();
  }
  Decision Decide(absl::Duration after = absl::ZeroDuration()) {
    return job_->recovery.Decide(*job_, members_, pauses_, kJobRecoveryWait, kLoss + after);
  }

  Membership members_{Membership::Options()};
  PauseDetector pauses_{absl::Seconds(10), kLoss};
  std::unique_ptr<Job> job_;
  Member* pservers_[2];
  Member* workers_[2];
};

TEST_F(JobRecoveryTest, WaitsForEveryPlaceAndForSurvivorsToStop) {
  Lose(pservers_[1]);
  Lose(workers_[0]);
  EXPECT_EQ(Decide().kind, Decision::kWait);
  EXPECT_THAT(
      Decide().message,
      AllOf(HasSubstr("worker 0 (pid 10 on host h)"), HasSubstr("10 s"),
            HasSubstr("pserver 1 to register"), Not(HasSubstr("pserver 0")),
            HasSubstr("worker 1 (pid 11 on host h) to stop"), HasSubstr("1 worker to register")));
  StopWorkers();
  EXPECT_THAT(Decide().message, Not(HasSubstr("to stop")));
  Join(&members_, ROLE_PSERVER, 1);
  EXPECT_THAT(Decide().message, Not(HasSubstr("pserver")));
  Join(&members_, ROLE_WORKER, 0)->job_id = "a";  // reserved
  EXPECT_EQ(Decide().kind, Decision::kBegin);
}

TEST_F(JobRecoveryTest, KeepsTheNewestEventsEachWithItsOutcome) {
  job_->recovery.NoteReached(/*steps=*/40, /*examples=*/400);
  Lose(workers_[0]);
  job_->recovery.Describe("rank 0 waits for a worker");
  job_->recovery.Describe("rank 0 continues as worker 2");
  ASSERT_EQ(job_->recovery.counts().events_size(), 1);
  EXPECT_EQ(job_->recovery.counts().events(0).step(), 40u);
  EXPECT_THAT(job_->recovery.counts().events(0).text(),
              AllOf(HasSubstr("worker 0"), HasSubstr("continues as worker 2")));
  // The same process again is another loss.
  Lose(workers_[0]);
  EXPECT_EQ(job_->recovery.counts().events_size(), 2);
  // What becomes of a loss is told after another one.
  Lose(pservers_[1]);
  const std::string first = job_->recovery.counts().events(1).text();
  job_->recovery.Describe(first, "rank 0 continues as worker 3");
  ASSERT_EQ(job_->recovery.counts().events_size(), 3);
  EXPECT_THAT(job_->recovery.counts().events(1).text(), HasSubstr("continues as worker 3"));
  EXPECT_THAT(job_->recovery.counts().events(0).text(), HasSubstr("continues as worker 2"));
  EXPECT_THAT(job_->recovery.counts().events(2).text(), HasSubstr("pserver 1"));
  JobRecovery next;
  next.Restore(job_->recovery.counts(), kLoss);
  EXPECT_EQ(next.counts().events_size(), 4);
  for (int i = 0; i < 1000; ++i) next.NoteCause(absl::StrCat("cause ", i), kLoss);
  EXPECT_EQ(next.counts().events_size(), 50);
  EXPECT_EQ(next.counts().events(49).text(), "cause 999");
  EXPECT_EQ(next.counts().events(0).text(), "cause 950");
}

TEST_F(JobRecoveryTest, WorkersOfOtherJobsDoNotCount) {
  Lose(workers_[0]);
  StopWorkers();
  Member* const another = Join(&members_, ROLE_WORKER, 0);
  another->job_id = "b";
  EXPECT_EQ(Decide().kind, Decision::kWait);
  another->job_id = "a";
  EXPECT_EQ(Decide().kind, Decision::kBegin);
}

TEST_F(JobRecoveryTest, GivesUpAfterTheWaitAndSaysForWhat) {
  Lose(pservers_[0]);
  StopWorkers();
  EXPECT_EQ(Decide(kJobRecoveryWait - absl::Seconds(1)).kind, Decision::kWait);
  EXPECT_EQ(Decide(kJobRecoveryWait).kind, Decision::kFail);
  EXPECT_THAT(Decide(kJobRecoveryWait).message,
              AllOf(HasSubstr("pserver 0"), HasSubstr("recovery.wait_s")));
  Join(&members_, ROLE_PSERVER, 0);
  EXPECT_EQ(Decide(2 * kJobRecoveryWait).kind, Decision::kBegin);
}

TEST_F(JobRecoveryTest, CountsWhatARollbackRepeats) {
  JobRecovery recovery;
  recovery.CountLoss(*pservers_[0], kLoss);
  recovery.CountLoss(*workers_[0], kLoss);
  EXPECT_EQ(recovery.losses(), 2u);
  recovery.NoteReached(100, 5000);
  recovery.BeginAttempt(60, 3000, "/c/step-60");
  EXPECT_EQ(recovery.counts().steps_rolled_back(), 40u);
  EXPECT_EQ(recovery.counts().examples_replayed(), 2000u);
  EXPECT_EQ(recovery.counts().updates_lost(), 0u);
  // An attempt that never ran loses nothing.
  recovery.BeginAttempt(60, 3000, "/c/step-60");
  EXPECT_EQ(recovery.counts().rollbacks(), 2u);
  EXPECT_EQ(recovery.counts().steps_rolled_back(), 40u);
  // Reports may be behind the checkpoint.
  recovery.NoteReached(70, 3500);
  recovery.BeginAttempt(80, 4000, "/c/step-80");
  EXPECT_EQ(recovery.counts().steps_rolled_back(), 40u);
  recovery.Describe("the job went back");
  EXPECT_THAT(recovery.counts().last(), AllOf(HasSubstr("worker 0"), HasSubstr("went back")));
}

TEST_F(JobRecoveryTest, CurvesShowLossesOnceThereAreSome) {
  EXPECT_THAT(job_->recovery.Points(1, /*replayed=*/0), IsEmpty());
  Lose(pservers_[1]);
  job_->recovery.NoteReached(100, 800);
  std::map<std::string, double> points;
  job_->recovery.BeginAttempt(60, 300, "/c/step-60");
  job_->recovery.NoteLost(0, 40);
  for (const Scalar& point : job_->recovery.Points(3, /*replayed=*/7)) {
    EXPECT_EQ(point.step, 3u);
    points[point.tag] = point.value;
  }
  EXPECT_EQ(points["recovery/pserver_losses"], 1);
  EXPECT_EQ(points["recovery/worker_losses"], 0);
  EXPECT_EQ(points["recovery/rollbacks"], 1);
  EXPECT_EQ(points["recovery/steps_rolled_back"], 40);
  EXPECT_EQ(points["recovery/examples_replayed"], 507);
  EXPECT_EQ(points["recovery/updates_lost"], 40);
}

TEST_F(JobRecoveryTest, CurvesShowARestartOfTheSchedulerAndWhatAResumeRepeats) {
  JobRecovery restarted;
  restarted.Restore(Recovery(), kLoss);
  std::map<std::string, double> points;
  for (const Scalar& point : restarted.Points(1, /*replayed=*/0)) points[point.tag] = point.value;
  EXPECT_EQ(points["recovery/scheduler_restarts"], 1);
  points.clear();
  for (const Scalar& point : JobRecovery().Points(1, /*replayed=*/7))
    points[point.tag] = point.value;
  EXPECT_EQ(points["recovery/examples_replayed"], 7);
}

TEST_F(JobRecoveryTest, LostUpdatesAreThoseThatPserversReportLast) {
  JobRecovery recovery;
  EXPECT_FALSE(recovery.NoteLost(1, 0));
  EXPECT_TRUE(recovery.NoteLost(1, 5));
  EXPECT_TRUE(recovery.NoteLost(0, 2));
  EXPECT_EQ(recovery.counts().updates_lost(), 7u);
  EXPECT_FALSE(recovery.NoteLost(1, 3)) << "its successor has not heard from all ranks yet";
  EXPECT_EQ(recovery.counts().updates_lost(), 7u);
  EXPECT_TRUE(recovery.NoteLost(1, 9));
  EXPECT_EQ(recovery.counts().updates_lost(), 11u);
  // Everything that the next attempt lacks is trained again.
  recovery.BeginAttempt(0, 0, "");
  EXPECT_EQ(recovery.counts().updates_lost(), 0u);
  EXPECT_TRUE(recovery.NoteLost(0, 1));
  EXPECT_EQ(recovery.counts().updates_lost(), 1u);
}

TEST_F(JobRecoveryTest, APlannedAttemptIsAScaling) {
  JobRecovery& recovery = job_->recovery;
  recovery.NoteReached(100, 5000);
  recovery.Plan("scaled from 2 to 3 workers", kLoss);
  EXPECT_THAT(Decide().message, HasSubstr("scaled from 2 to 3 workers"));
  recovery.BeginAttempt(80, 4000, "/c/step-80");
  EXPECT_EQ(recovery.counts().scalings(), 1u);
  EXPECT_EQ(recovery.counts().rollbacks(), 0u);
  EXPECT_EQ(recovery.counts().steps_rolled_back(), 20u);
  EXPECT_EQ(recovery.counts().examples_replayed(), 1000u);
  EXPECT_THAT(recovery.counts().last(),
              AllOf(HasSubstr("scaled from 2 to 3 workers"), HasSubstr("/c/step-80")));
  // The next one is not planned.
  Lose(workers_[0]);
  recovery.CountShrink(1);
  recovery.BeginAttempt(80, 4000, "/c/step-80");
  EXPECT_EQ(recovery.counts().scalings(), 1u);
  EXPECT_EQ(recovery.counts().rollbacks(), 1u);
  EXPECT_EQ(recovery.counts().shrinks(), 1u);
}

TEST_F(JobRecoveryTest, AnAttemptThatBeginsWhereTheOneBeforeEndedIsNoRollback) {
  JobRecovery& recovery = job_->recovery;
  Lose(workers_[0]);
  recovery.NoteReached(100, 5000);
  recovery.CountShrink(1);
  recovery.ContinueInPlace();
  // A step that was computed and not applied was reached as well.
  recovery.BeginAttempt(99, 4950, "/c/step-99");
  EXPECT_EQ(recovery.counts().shrinks(), 1u);
  EXPECT_EQ(recovery.counts().rollbacks(), 0u);
  EXPECT_EQ(recovery.counts().steps_rolled_back(), 0u);
  EXPECT_EQ(recovery.counts().examples_replayed(), 0u);
  EXPECT_THAT(recovery.counts().last(), AllOf(HasSubstr("worker 0"), HasSubstr("step 99")));
  // The next one is a rollback again.
  recovery.NoteReached(100, 5000);
  recovery.BeginAttempt(99, 4950, "/c/step-99");
  EXPECT_EQ(recovery.counts().rollbacks(), 1u);
  EXPECT_EQ(recovery.counts().examples_replayed(), 50u);
}

TEST_F(JobRecoveryTest, TheWaitBeginsWhenTheAttemptEnds) {
  Lose(workers_[0]);
  EXPECT_EQ(Decide(kJobRecoveryWait).kind, Decision::kFail);
  job_->recovery.WaitFrom(kLoss + kJobRecoveryWait);
  EXPECT_EQ(Decide(kJobRecoveryWait).kind, Decision::kWait);
  EXPECT_EQ(Decide(2 * kJobRecoveryWait).kind, Decision::kFail);
}

}  // namespace
}  // namespace sluice

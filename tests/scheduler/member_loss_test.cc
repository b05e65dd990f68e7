#include "scheduler/member_loss.h"

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
  LossDecision::Kind Decide() { return DecideMemberLoss(*job_, *worker_).kind; }

  Membership members_{Membership::Options()};
  std::unique_ptr<Job> job_;
  Member* worker_ = nullptr;
};

TEST_F(MemberLossTest, AJobThatNeedsTheMemberFailsAndNamesIt) {
  job_->state = JOB_STARTING;
  EXPECT_EQ(Decide(), LossDecision::kFails);
  SetRunning(job_.get());
  EXPECT_EQ(Decide(), LossDecision::kFails);
  EndPhase(job_.get());
  EXPECT_EQ(Decide(), LossDecision::kFails);
  EXPECT_THAT(DecideMemberLoss(*job_, *worker_).message,
              AllOf(testing::HasSubstr("worker 3"), testing::HasSubstr("no heartbeat for 10 s")));
}

TEST_F(MemberLossTest, AJobGoesOnWhenItsPhasesAreDone) {
  SetRunning(job_.get());
  EndPhase(job_.get());
  EndPhase(job_.get());
  ASSERT_TRUE(job_->finishing());
  EXPECT_EQ(Decide(), LossDecision::kGoesOn);
}

TEST_F(MemberLossTest, AnEndedJobKeepsItsOutcome) {
  SetRunning(job_.get());
  job_->outcome = JOB_CANCELLED;
  EXPECT_EQ(Decide(), LossDecision::kGoesOn);
}

}  // namespace
}  // namespace sluice

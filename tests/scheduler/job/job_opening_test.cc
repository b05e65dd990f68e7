#include "scheduler/job/job_opening.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kWait = absl::Seconds(120);
const absl::Time kStart = absl::UnixEpoch();

class JobOpeningTest : public testing::Test {
 protected:
  JobOpeningTest() : job_(QueuedFor("a")) {
    for (const uint32_t rank : {0, 1}) {
      pservers_[rank] = Join(&members_, ROLE_PSERVER, rank);
      AddPserver(job_.get(), *pservers_[rank]);
    }
    job_->attempt.MutableSpecForTest()->mutable_route()->set_generation(1);
    job_->attempt.opening().Begin(kStart);
  }
  // Reports how much of the model the pserver has read. `generation` 1: the tables are open.
  void Report(uint32_t rank, uint64_t generation, uint64_t loaded = 0) {
    HostedJob& hosted = pservers_[rank]->hosted["a"];
    hosted.set_job_id("a");
    hosted.set_instance(77);
    hosted.set_generation(generation);
    hosted.set_loaded_bytes(loaded);
  }
  JobOpening::Decision Decide(absl::Duration after) {
    return job_->attempt.opening().Decide(*job_, members_, pauses_, kWait, kStart + after);
  }

  Membership members_{Membership::Options()};
  PauseDetector pauses_{absl::Seconds(10), kStart};
  std::unique_ptr<Job> job_;
  Member* pservers_[2] = {};
};

TEST_F(JobOpeningTest, RunsWhenAllPserversHaveOpenedAndTheFolderIsReady) {
  Report(0, 1);
  job_->attempt.opening().OutputReady();
  EXPECT_EQ(Decide(absl::ZeroDuration()).kind, JobOpening::Decision::kWait);
  Report(1, 1);
  EXPECT_EQ(Decide(absl::ZeroDuration()).kind, JobOpening::Decision::kRun);
}

TEST_F(JobOpeningTest, TablesOfAnotherInstanceAreNotOpen) {
  job_->attempt.opening().OutputReady();
  Report(0, 1);
  Report(1, 1);
  pservers_[1]->hosted["a"].set_instance(78);
  EXPECT_EQ(Decide(absl::ZeroDuration()).kind, JobOpening::Decision::kWait);
}

TEST_F(JobOpeningTest, AFolderThatIsNeverReadyFailsTheJob) {
  Report(0, 1);
  Report(1, 1);
  EXPECT_EQ(Decide(kWait - absl::Seconds(1)).kind, JobOpening::Decision::kWait);
  const JobOpening::Decision decision = Decide(kWait);
  EXPECT_EQ(decision.kind, JobOpening::Decision::kFail);
  EXPECT_THAT(decision.message, HasSubstr("/output/a"));
}

TEST_F(JobOpeningTest, OnlyThePserverThatIsLateIsNamed) {
  Report(0, 1);
  EXPECT_EQ(Decide(kWait - absl::Seconds(1)).kind, JobOpening::Decision::kWait);
  const JobOpening::Decision decision = Decide(kWait);
  EXPECT_EQ(decision.kind, JobOpening::Decision::kFail);
  EXPECT_THAT(decision.message, AllOf(HasSubstr("pserver 1 "), Not(HasSubstr("pserver 0 "))));
}

TEST_F(JobOpeningTest, TheWaitCountsFromTheLastProgressOfTheLoad) {
  Report(0, 1);
  Report(1, 0, /*loaded=*/100);
  EXPECT_TRUE(Decide(absl::Seconds(100)).progressed);
  EXPECT_FALSE(Decide(absl::Seconds(150)).progressed);
  Report(1, 0, /*loaded=*/99);  // overtaken by a later report
  EXPECT_EQ(Decide(absl::Seconds(219)).kind, JobOpening::Decision::kWait);
  EXPECT_EQ(Decide(absl::Seconds(220)).kind, JobOpening::Decision::kFail);
}

TEST_F(JobOpeningTest, APauseOfTheSchedulerDoesNotCount) {
  ASSERT_TRUE(pauses_.HasPaused(kStart + absl::Seconds(300)));
  EXPECT_EQ(Decide(absl::Seconds(400)).kind, JobOpening::Decision::kWait);
  EXPECT_EQ(Decide(absl::Seconds(420)).kind, JobOpening::Decision::kFail);
}

TEST_F(JobOpeningTest, ALostPserverIsNotJudgedHere) {
  job_->pservers.Serve({pservers_[0]->id, pservers_[1]->id, 12345});
  EXPECT_EQ(Decide(2 * kWait).kind, JobOpening::Decision::kWait);
}

}  // namespace
}  // namespace sluice

#include "scheduler/job.h"

#include <gtest/gtest.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

TEST(JobTest, ReportsAboutAnotherInstanceDoNotCount) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->spec.mutable_route()->set_generation(4);
  Member* const pserver = Join(&members, ROLE_PSERVER, 0);
  EXPECT_EQ(HostedOf(*job, *pserver), nullptr);
  HostedJob& hosted = pserver->hosted["a"];
  hosted.set_instance(76);
  hosted.set_generation(4);
  EXPECT_EQ(HostedOf(*job, *pserver), nullptr);
  EXPECT_FALSE(HasOpened(*job, *pserver));
  hosted.set_instance(77);
  EXPECT_EQ(HostedOf(*job, *pserver), &hosted);
  EXPECT_TRUE(HasOpened(*job, *pserver));
  hosted.set_generation(3);
  EXPECT_FALSE(HasOpened(*job, *pserver));
}

TEST(JobTest, AJobIsServedByItsPserversAndItsWorkers) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  Member* const pserver = Join(&members, ROLE_PSERVER, 0);
  Member* const worker = Join(&members, ROLE_WORKER, 0);
  EXPECT_FALSE(Serves(*job, *pserver));
  EXPECT_FALSE(Serves(*job, *worker));
  EXPECT_EQ(job->ranks.SlotOf(worker->id), nullptr);
  job->pservers.members.push_back(pserver->id);
  Allocate(job.get(), worker);
  EXPECT_TRUE(Serves(*job, *pserver));
  EXPECT_TRUE(Serves(*job, *worker));
  EXPECT_EQ(job->ranks.SlotOf(worker->id), &job->ranks.slots[0]);
}

TEST(JobTest, WarningsAreBounded) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  size_t added = 0;
  for (int i = 0; i < 500; ++i) added += AddWarning(job.get(), std::to_string(i));
  EXPECT_EQ(added, kMaxWarnings);
  EXPECT_EQ(job->warnings.size(), kMaxWarnings);
  EXPECT_EQ(job->warnings[kMaxWarnings - 2], std::to_string(kMaxWarnings - 2));
  EXPECT_EQ(job->warnings.back().find_first_of("0123456789"), std::string::npos);
}

TEST(JobTest, SettledMeansWrittenReleasedAndDropped) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->ranks.slots.emplace_back(1, 0, 1);
  job->ranks.slots[0].Release();
  EXPECT_FALSE(job->settled()) << "it is not over";
  job->state = job->outcome = JOB_FAILED;
  EXPECT_TRUE(job->settled());
  job->hosted = true;
  EXPECT_FALSE(job->settled());
  job->hosted = false;
  job->state = JOB_RUNNING;  // the result is being written
  EXPECT_FALSE(job->settled());
  job->state = JOB_FAILED;
  job->ranks.slots.emplace_back(2, 1, 1);
  EXPECT_FALSE(job->released());
  EXPECT_FALSE(job->settled());
}

TEST(JobTest, SavesOfTwoInstancesHaveDifferentIds) {
  const std::unique_ptr<Job> a = QueuedFor("a"), b = QueuedFor("a");
  b->spec.set_instance(78);
  EXPECT_NE(SaveIdOf(*a), "");
  EXPECT_NE(SaveIdOf(*a), SaveIdOf(*b));
}

}  // namespace
}  // namespace sluice

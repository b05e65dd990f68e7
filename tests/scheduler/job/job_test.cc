#include "scheduler/job/job.h"

#include <gtest/gtest.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

TEST(JobTest, ReportsAboutAnotherInstanceDoNotCount) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->attempt.MutableSpecForTest()->mutable_route()->set_generation(4);
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
  AddPserver(job.get(), *pserver);
  Allocate(job.get(), worker);
  EXPECT_TRUE(Serves(*job, *pserver));
  EXPECT_TRUE(Serves(*job, *worker));
  EXPECT_EQ(job->ranks.SlotOf(worker->id), &job->ranks.slots()[0]);
}

TEST(JobTest, WarningsAreBounded) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  size_t added = 0;
  for (int i = 0; i < 500; ++i) added += job->AddWarning(std::to_string(i));
  EXPECT_EQ(added, size_t{Job::kMaxWarnings});
  EXPECT_EQ(job->warnings().size(), size_t{Job::kMaxWarnings});
  EXPECT_EQ(job->warnings()[Job::kMaxWarnings - 2], std::to_string(Job::kMaxWarnings - 2));
  EXPECT_EQ(job->warnings().back().find_first_of("0123456789"), std::string::npos);
}

TEST(JobTest, SettledMeansWrittenReleasedAndDropped) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->ranks.Add(1, 0, 1);
  job->ranks.slots()[0].Release();
  EXPECT_FALSE(job->settled()) << "it is not over";
  job->course.End(JOB_FAILED, "", absl::UnixEpoch());
  EXPECT_FALSE(job->settled()) << "the result is being written";
  job->course.Written();
  EXPECT_TRUE(job->settled());
  job->attempt.Open(absl::UnixEpoch());
  EXPECT_FALSE(job->settled());
  job->attempt.DropTables();
  job->ranks.Add(2, 1, 1);
  EXPECT_FALSE(job->released());
  EXPECT_FALSE(job->settled());
}

TEST(JobTest, ReportsAreUntoldUntilTheVersionRises) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  const uint64_t before = job->status_version();
  job->NoteProgress();
  EXPECT_TRUE(job->progress_untold());
  job->RaiseVersion();
  EXPECT_FALSE(job->progress_untold());
  EXPECT_GT(job->status_version(), before);
}

TEST(JobTest, AnArchivedJobHasOnlyItsStatus) {
  const std::unique_ptr<Job> job = QueuedFor("a");
  SetRunning(job.get());
  SetDone(job.get());
  EXPECT_EQ(job->archived(), nullptr);
  JobStatus status;
  status.set_message("kept");
  job->Archive(status);
  EXPECT_EQ(job->archived()->message(), "kept");
  EXPECT_EQ(job->run(), nullptr);
  EXPECT_EQ(job->config().output_dir(), "");
  EXPECT_EQ(job->id(), "a");
  EXPECT_TRUE(job->settled());
}

TEST(JobTest, SavesOfTwoInstancesHaveDifferentIds) {
  const std::unique_ptr<Job> a = QueuedFor("a"), b = QueuedFor("a");
  b->attempt.MutableSpecForTest()->set_instance(78);
  EXPECT_NE(SaveIdOf(*a), "");
  EXPECT_NE(SaveIdOf(*a), SaveIdOf(*b));
}

}  // namespace
}  // namespace sluice

#include "scheduler/registry/job_status.h"

#include <gmock/gmock.h>

#include "tests/scheduler/fake_cluster.h"
#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(JobStatusTest, AStatusNamesWorkersAndCountsTheLivingOnes) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a", 2);
  for (const uint32_t rank : {3, 5}) Allocate(job.get(), Join(&members, ROLE_WORKER, rank));
  members.MarkGone(members.At(ROLE_WORKER, 5), "gone");
  SetRunning(job.get());
  const JobStatus status = MakeJobStatus(*job, members);
  EXPECT_EQ(status.job_id(), "a");
  EXPECT_EQ(status.state(), JOB_RUNNING);
  EXPECT_EQ(status.phase(), "index");
  EXPECT_EQ(status.workers_alive(), 1u);
  EXPECT_THAT(status.allocated(), ElementsAre(3, 5));
  EXPECT_FALSE(status.has_result());
}

TEST(JobStatusTest, AStartingJobWaitsForPserversAndThenForItsFolder) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->course.Start();
  Member* const pserver = Join(&members, ROLE_PSERVER, 0);
  AddPserver(job.get(), *pserver);
  EXPECT_THAT(MakeJobStatus(*job, members).waiting_for(), HasSubstr("pserver 0"));
  pserver->hosted["a"].set_instance(77);
  EXPECT_THAT(MakeJobStatus(*job, members).waiting_for(), HasSubstr("/output/a"));
  job->attempt.opening().OutputReady();
  EXPECT_EQ(MakeJobStatus(*job, members).waiting_for(), "");
}

TEST(JobStatusTest, AResultIsShownOnlyOnceItIsWritten) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->course.End(JOB_FAILED, "disk full", absl::UnixEpoch());
  job->course.SetResult(MakeJobResult(*job, members));
  EXPECT_FALSE(MakeJobStatus(*job, members).has_result());
  job->course.Written();
  const JobStatus status = MakeJobStatus(*job, members);
  EXPECT_EQ(status.result().status(), "failed");
  EXPECT_EQ(status.result().message(), "disk full");
}

TEST(JobStatusTest, OnlyAJobThatIsDoneHasAModel) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  *job->MutableConfigForTest() = FakeCluster::Config(/*k_steps=*/-1, /*workers=*/1);
  job->MutableConfigForTest()->mutable_data()->clear_eval_files();
  SetRunning(job.get());
  PhaseReport saved = Ended(3);
  saved.mutable_save()->set_model_digest("d1");
  for (const PhaseReport& report : {Indexed(10, 0, 1), Trained(2, 10), saved}) {
    ASSERT_TRUE(job->run()->TakeReport(0, report, absl::UnixEpoch()).ok());
  }
  job->course.End(JOB_DONE, "", absl::UnixEpoch());
  EXPECT_EQ(MakeJobResult(*job, members).status(), "done");
  EXPECT_EQ(MakeJobResult(*job, members).model_digest(), "d1");
  job->course.End(JOB_CANCELLED, "", absl::UnixEpoch());
  EXPECT_EQ(MakeJobResult(*job, members).status(), "cancelled");
  EXPECT_EQ(MakeJobResult(*job, members).model_digest(), "");
}

TEST(JobStatusTest, OnlyTheFirstMissingRanksAreNamed) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a", 12);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < 12; ++rank) {
    Allocate(job.get(), Join(&members, ROLE_WORKER, rank));
    ranks.push_back(rank);
  }
  SetRunning(job.get());
  const std::string text = DescribeMissing(*job, ranks, members);
  EXPECT_THAT(text, HasSubstr("rank 7 (worker 7"));
  EXPECT_THAT(text, Not(HasSubstr("rank 8 ")));
  EXPECT_THAT(text, HasSubstr("4 more"));
  EXPECT_THAT(text, HasSubstr("index"));
}

TEST(JobStatusTest, AnArchivedJobKeepsItsStatus) {
  Membership members{Membership::Options()};
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->MutableConfigForTest()->add_features()->set_name("f");
  SetRunning(job.get());
  job->course.End(JOB_DONE, "", absl::UnixEpoch());
  job->course.SetResult(MakeJobResult(*job, members));
  job->course.Written();
  const JobStatus whole = MakeJobStatus(*job, members);
  ArchiveJob(job.get(), members);
  const JobStatus kept = MakeJobStatus(*job, members);
  EXPECT_EQ(kept.result().SerializeAsString(), whole.result().SerializeAsString());
  EXPECT_EQ(kept.config().output_dir(), "/output/a");
  EXPECT_EQ(kept.config().features_size(), 0);
  EXPECT_FALSE(job->run());
  EXPECT_EQ(job->id(), "a");
}

TEST(JobStatusTest, AMemberThatIsGoneSaysWhy) {
  Membership members{Membership::Options()};
  Member* const worker = Join(&members, ROLE_WORKER, 0);
  worker->progress.set_doing("training");
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(3);
  MemberStatus status = MakeMemberStatus(*worker, now);
  EXPECT_TRUE(status.alive());
  EXPECT_EQ(status.doing(), "training");
  EXPECT_EQ(status.last_seen_s(), 3);
  members.MarkGone(worker, "killed");
  status = MakeMemberStatus(*worker, now);
  EXPECT_FALSE(status.alive());
  EXPECT_EQ(status.doing(), "killed");
}

}  // namespace
}  // namespace sluice

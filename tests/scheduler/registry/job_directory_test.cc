#include "scheduler/registry/job_directory.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class JobDirectoryTest : public testing::Test {
 protected:
  Job* Add(const std::string& job_id) { return jobs_.Add(QueuedFor(job_id)); }
  // Makes the job active, ended and written.
  void Finish(Job* job) {
    jobs_.Activate(job);
    SetDone(job);
  }
  Membership members_{Membership::Options()};
  JobDirectory jobs_;
};

TEST_F(JobDirectoryTest, JobsAreFoundById) {
  Job* const a = Add("a-1");
  EXPECT_EQ(jobs_.Find("a-1"), a);
  EXPECT_EQ(jobs_.Find("a-2"), nullptr);
  EXPECT_EQ(jobs_.all().size(), 1u);
  EXPECT_THAT(jobs_.active(), IsEmpty());
  jobs_.Activate(a);
  EXPECT_THAT(jobs_.active(), ElementsAre(a));
}

TEST_F(JobDirectoryTest, OnlySettledJobsStopBeingActive) {
  Job* const running = Add("a-1");
  jobs_.Activate(running);
  Job* const hosted = Add("a-2");
  Finish(hosted);
  hosted->attempt.Open(absl::UnixEpoch());
  Job* const served = Add("a-3");
  Finish(served);
  Allocate(served, Join(&members_, ROLE_WORKER, 0));
  Job* const unwritten = Add("a-4");
  jobs_.Activate(unwritten);
  unwritten->course.End(JOB_DONE, "", absl::UnixEpoch());
  Job* const done = Add("a-5");
  Finish(done);
  EXPECT_THAT(jobs_.Settle(members_), IsEmpty());
  EXPECT_THAT(jobs_.active(), ElementsAre(running, hosted, served, unwritten));
  EXPECT_EQ(jobs_.Find("a-5"), done);
  EXPECT_FALSE(done->archived());
}

TEST_F(JobDirectoryTest, OldSettledJobsAreArchivedAndThenForgotten) {
  constexpr size_t kJobs = JobDirectory::kRememberedJobs + 2;
  std::vector<std::string> forgotten;
  for (size_t i = 0; i < kJobs; ++i) {
    Finish(Add(absl::StrCat("a-", i)));
    for (const std::string& job_id : jobs_.Settle(members_)) forgotten.push_back(job_id);
  }
  EXPECT_THAT(forgotten, ElementsAre("a-0", "a-1"));
  EXPECT_EQ(jobs_.Find("a-1"), nullptr);
  EXPECT_EQ(jobs_.all().size(), JobDirectory::kRememberedJobs);
  for (size_t i = 2; i < kJobs; ++i) {
    const Job* job = jobs_.Find(absl::StrCat("a-", i));
    ASSERT_NE(job, nullptr);
    EXPECT_EQ(job->archived() != nullptr, i + JobDirectory::kWholeJobs < kJobs) << i;
  }
}

TEST_F(JobDirectoryTest, MembersServeTheirJobsUntilTheJobsSettle) {
  Member* const pserver = Join(&members_, ROLE_PSERVER, 0);
  Member* const worker = Join(&members_, ROLE_WORKER, 0);
  Job* const a = Add("a-1");
  Job* const b = Add("a-2");
  for (Job* job : {a, b}) {
    AddPserver(job, *pserver);
    jobs_.Activate(job);
  }
  Allocate(b, worker);
  EXPECT_THAT(jobs_.ServedBy(*pserver), ElementsAre(a, b));
  EXPECT_THAT(jobs_.ServedBy(*worker), ElementsAre(b));
  EXPECT_THAT(jobs_.NeedingMember(*worker), ElementsAre(b));
  Member* const reserved = Join(&members_, ROLE_WORKER, 1);
  reserved->job_id = "a-2";
  EXPECT_THAT(jobs_.ServedBy(*reserved), IsEmpty());
  EXPECT_THAT(jobs_.NeedingMember(*reserved), IsEmpty()) << "only a plan needs it";
  b->course.Recover();
  EXPECT_THAT(jobs_.NeedingMember(*reserved), ElementsAre(b));
  worker->job_id.clear();
  EXPECT_THAT(jobs_.ServedBy(*worker), IsEmpty());
  SetDone(a);
  jobs_.Settle(members_);
  EXPECT_THAT(jobs_.ServedBy(*pserver), ElementsAre(b));
}

TEST_F(JobDirectoryTest, TwoJobsCannotWriteToTheSamePlace) {
  Job* const a = Add("a-1");
  a->MutableConfigForTest()->set_trace_file("/trace");
  JobConfig config;
  config.set_output_dir("/output/other");
  EXPECT_TRUE(jobs_.CheckOutputs(config).ok());
  config.set_trace_file("/trace");
  EXPECT_TRUE(absl::IsAlreadyExists(jobs_.CheckOutputs(config)));
  config.clear_trace_file();
  config.set_output_dir("/output/a-1");
  EXPECT_TRUE(absl::IsAlreadyExists(jobs_.CheckOutputs(config)));
  a->course.End(JOB_DONE, "", absl::UnixEpoch());  // its result is still being written
  EXPECT_TRUE(absl::IsAlreadyExists(jobs_.CheckOutputs(config)));
  a->course.Written();
  EXPECT_TRUE(jobs_.CheckOutputs(config).ok());
}

}  // namespace
}  // namespace sluice

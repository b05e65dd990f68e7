#include "scheduler/core/job_admission.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(JobAdmissionTest, TwoJobsRunSideBySideAndAThirdQueues) {
  FakeCluster c(1, 3);
  c.JoinAll(1, 3);
  const std::string a = c.Run(FakeCluster::Config(0, 2));
  const std::string b = c.Run(FakeCluster::Config(0, 1));
  const std::string third = *c.Submit(FakeCluster::Config(0, 2));
  EXPECT_EQ(c.State(third), JOB_QUEUED);
  EXPECT_THAT(c.Status(third).message(), HasSubstr("2 free workers, 0"));
  EXPECT_EQ(c.desired_[c.pservers_[0]].host_size(), 2);
  ASSERT_TRUE(c.core_.operators().CancelJob(b, c.now_).ok());
  c.PollAll();
  EXPECT_THAT(c.Status(third).message(), HasSubstr("2 free workers, 1"));
  ASSERT_TRUE(c.core_.operators().CancelJob(a, c.now_).ok());
  c.PollAll();
  EXPECT_EQ(c.State(third), JOB_RUNNING);
  EXPECT_EQ(c.desired_[c.pservers_[0]].host_size(), 1);
}

TEST(JobAdmissionTest, AJobWaitsForALatePserverAndNamesIt) {
  FakeCluster c(2, 1);
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  c.PollAll();
  EXPECT_THAT(c.Status(job).message(), HasSubstr("pserver 1"));
  c.pservers_.push_back(c.Join(ROLE_PSERVER, 1));
  c.PollAll();
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  EXPECT_EQ(c.Status(job).route().pservers_size(), 2);
}

TEST(JobAdmissionTest, GivesUpOnMembersThatNeverCome) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 2));
  for (int i = 0; i < 119; ++i) {
    c.Advance(absl::Seconds(1));
    c.PollAll();
  }
  EXPECT_EQ(c.State(job), JOB_QUEUED);
  c.Advance(absl::Seconds(2));
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("1 is registered"));
}

TEST(JobAdmissionTest, ImpossibleJobsAreRefusedAtOnce) {
  FakeCluster c(1, 2);
  EXPECT_THAT(std::string(c.Submit(FakeCluster::Config(0, 3)).status().message()),
              testing::AllOf(HasSubstr("3 workers"), HasSubstr("has 2")));
  FakeCluster none(1, 0);
  EXPECT_THAT(std::string(none.Submit(FakeCluster::Config(0, 1)).status().message()),
              HasSubstr("no workers"));
}

TEST(JobAdmissionTest, TwoJobsCannotShareAnOutputFolder) {
  FakeCluster c(1, 2);
  JobConfig config = FakeCluster::Config(0, 1);
  config.set_output_dir("/same");
  ASSERT_TRUE(c.Submit(config).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(c.Submit(config).status()));
}

TEST(JobAdmissionTest, TwoJobsCannotShareATraceFile) {
  FakeCluster c(1, 2);
  JobConfig config = FakeCluster::Config(0, 1);
  ASSERT_TRUE(c.Submit(config).ok());
  ASSERT_TRUE(c.Submit(config).ok());
  config.set_trace_file("/same");
  ASSERT_TRUE(c.Submit(config).ok());
  EXPECT_THAT(std::string(c.Submit(config).status().message()), HasSubstr("--trace"));
}

TEST(JobAdmissionTest, TheQueueIsBounded) {
  FakeCluster c(1, 1);  // nobody has registered, so all jobs wait
  for (size_t i = 0; i < JobQueue::kMaxJobs; ++i) {
    ASSERT_TRUE(c.Submit(FakeCluster::Config(0, 1)).ok()) << i;
  }
  const auto refused = c.Submit(FakeCluster::Config(0, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no more than 1000"));
  ASSERT_TRUE(c.core_.operators().CancelJob("job-7", c.now_).ok());
  EXPECT_TRUE(c.Submit(FakeCluster::Config(0, 1)).ok());
}

TEST(JobAdmissionTest, PserversAreToldTheInitialCheckpointAndTheJobStartsAtItsFirstStep) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  JobConfig config = FakeCluster::Config(0, 1);
  config.set_initial_checkpoint("/yesterday/checkpoints/step-7");
  const std::string job = c.Run(config);
  const JobSpec& spec = c.desired_[c.pservers_[0]].host(0);
  EXPECT_EQ(spec.restore().kind(), Restore::INITIAL);
  EXPECT_EQ(spec.restore().directory(), "/yesterday/checkpoints/step-7");
  EXPECT_EQ(c.Status(job).global_step(), 0u);
  ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());
  c.Run(FakeCluster::Config(0, 1));
  EXPECT_FALSE(c.desired_[c.pservers_[0]].host(0).has_restore());
}

TEST(JobAdmissionTest, EachJobHasItsOwnInstance) {
  SchedulerCore::Options options = FakeCluster::Options(1, 2);
  options.first_id = 77;
  CoreOfKnownCallers core(options, absl::UnixEpoch());
  std::set<uint64_t> instances;
  core.Register(FakeCluster::Registration(ROLE_PSERVER, 0), absl::UnixEpoch())
      .status()
      .IgnoreError();
  for (const uint32_t rank : {0, 1}) {
    PollRequest report;
    report.set_member_id(
        core.Register(FakeCluster::Registration(ROLE_WORKER, rank), absl::UnixEpoch())
            ->member_id());
    ASSERT_TRUE(core.Poll(report, absl::UnixEpoch()).ok());
    ASSERT_TRUE(FakeCluster::SubmitTo(&core, FakeCluster::Config(0, 1), absl::UnixEpoch()).ok());
  }
  const PollReply desired = *core.members().Desired(77);
  for (const JobSpec& spec : desired.host()) instances.insert(spec.instance());
  EXPECT_EQ(instances.size(), 2u);
  EXPECT_GE(*instances.begin(), 77u);
}

}  // namespace
}  // namespace sluice

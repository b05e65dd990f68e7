#include "scheduler/core/member_calls.h"

#include <gmock/gmock.h>

#include <string>

#include "common/security/job_passes.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(MemberCallsTest, EachMemberGetsTheSecretOfItsPlaceAlone) {
  SchedulerCore::Options options = FakeCluster::Options(1, 2);
  options.pass_key = std::string(32, 'k');
  FakeCluster c(options);
  c.JoinAll(1, 2);
  c.Run(FakeCluster::Config(-1, 2));
  const JobSpec& hosted = c.desired_[c.pservers_[0]].host(0);
  EXPECT_EQ(hosted.pass_key(), JobPassKey(options.pass_key, hosted.instance()));
  const JobPasses passes(hosted.pass_key());
  for (const uint32_t rank : {0, 1}) {
    const WorkerAssignment& assigned = c.desired_[c.workers_[rank]].assignment();
    EXPECT_EQ(assigned.job().pass_key(), "") << "with the key it could make every pass";
    EXPECT_TRUE(passes.CheckWorker(assigned.rank(), assigned.incarnation(), assigned.pass()).ok());
  }
}

TEST(MemberCallsTest, ACallWithoutTheSecretOfItsMemberChangesNothing) {
  FakeCluster c(2, 2);
  c.JoinAll(2, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  SchedulerCore& core = c.core_;  // whose callers show only what they say
  const auto denied = [](const absl::Status& status) { return absl::IsPermissionDenied(status); };
  for (const std::string& secret :
       {std::string(), std::string("guess"), c.core_.SecretOf(c.workers_[1])}) {
    PollRequest poll;
    poll.set_member_id(c.workers_[0]);
    poll.set_secret(secret);
    poll.mutable_progress()->set_doing("nothing");
    EXPECT_TRUE(denied(core.members().Poll(poll, c.now_).status()));
    LeaveRequest leave;
    leave.set_member_id(c.workers_[0]);
    leave.set_secret(secret);
    EXPECT_TRUE(denied(core.members().Leave(leave, c.now_)));
    FailJobRequest fail;
    fail.set_member_id(c.workers_[0]);
    fail.set_secret(secret);
    fail.set_job_id(job);
    fail.set_incarnation(c.Incarnation(job, 0));
    EXPECT_TRUE(denied(core.workers().FailJob(fail, c.now_)));
    DrainPserverRequest drain;
    drain.set_rank(0);
    drain.set_member_id(c.pservers_[0]);
    drain.set_secret(secret);
    EXPECT_TRUE(denied(core.operators().DrainPserver(drain, c.now_).status()));
    core.members().ConnectionBroke(c.workers_[0], secret, c.now_);
  }
  c.Advance(absl::Seconds(5));  // longer than a member has to come back after its connection broke
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  const ClusterStatus status = core.operators().GetStatus(c.now_);
  for (const MemberStatus& member : status.members()) {
    EXPECT_TRUE(member.alive()) << member.ShortDebugString();
    EXPECT_FALSE(member.draining());
    EXPECT_NE(member.doing(), "nothing");
  }
  EXPECT_TRUE(c.Poll(c.workers_[0]).ok());
}

TEST(MemberCallsTest, TheEndOfAProcessIsALossUnlessItHasLeftBefore) {
  FakeCluster c;
  c.JoinAll(1, 2);
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_pid(1);
  ended.set_process_space("space");
  EXPECT_TRUE(c.core_.members().MemberEnded(ended, c.now_));
  EXPECT_TRUE(c.core_.members().MemberEnded(ended, c.now_)) << "the answer was lost";
  EXPECT_TRUE(c.core_.members().Knows(ended));
  ended.set_rank(1);
  LeaveRequest leave;
  leave.set_member_id(c.workers_[1]);
  c.core_.Leave(leave, c.now_);
  EXPECT_FALSE(c.core_.members().MemberEnded(ended, c.now_)) << "it has left in order";
  EXPECT_TRUE(c.core_.members().Knows(ended));
  ended.set_rank(2);
  EXPECT_FALSE(c.core_.members().MemberEnded(ended, c.now_)) << "nobody has this place";
  EXPECT_FALSE(c.core_.members().Knows(ended));
}

// A job has lost its pserver and waits. Its worker, started again, dies each time before the job
// goes on.
class DyingReserveTest : public ::testing::Test {
 protected:
  void Begin(uint32_t max_losses) {
    c_.JoinAll(1, 1);
    JobConfig config = FakeCluster::Config(-1, 1, 3);
    config.mutable_recovery()->set_max_losses(max_losses);
    config.mutable_recovery()->set_wait_s(60);
    job_ = c_.Run(config);
    End(ROLE_PSERVER, 1);
    End(ROLE_WORKER, 1);
    ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  }
  void End(Role role, uint32_t pid) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_pid(pid);
    ended.set_process_space("space");
    ended.set_reason("its process exited with code 1");
    EXPECT_TRUE(c_.core_.members().MemberEnded(ended, c_.now_));
  }
  void LiveAndDie(uint32_t pid) {
    c_.Poll(c_.Join(ROLE_WORKER, 0, pid)).status().IgnoreError();
    End(ROLE_WORKER, pid);
  }

  FakeCluster c_;
  std::string job_;
};

TEST_F(DyingReserveTest, EachDeathCountsForTheLossesThatTheJobSurvives) {
  Begin(/*max_losses=*/4);
  for (uint32_t pid = 2; pid < 4; ++pid) {
    LiveAndDie(pid);
    EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
    EXPECT_EQ(c_.Status(job_).recovery().worker_losses(), pid);
  }
  LiveAndDie(4);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_NE(c_.Status(job_).message().find("recovery.max_losses"), std::string::npos)
      << c_.Status(job_).message();
}

TEST_F(DyingReserveTest, TheWaitOfTheJobDoesNotBeginAnew) {
  Begin(/*max_losses=*/100);
  for (uint32_t pid = 2; pid < 14; ++pid) {
    c_.Advance(absl::Seconds(9));
    LiveAndDie(pid);
  }
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_NE(c_.Status(job_).message().find("recovery.wait_s"), std::string::npos)
      << c_.Status(job_).message();
}

TEST_F(DyingReserveTest, AWorkerThatLeavesInOrderIsNoLoss) {
  Begin(/*max_losses=*/100);
  const uint64_t worker = c_.Join(ROLE_WORKER, 0, 2);
  c_.Poll(worker).status().IgnoreError();
  LeaveRequest leave;
  leave.set_member_id(worker);
  c_.core_.Leave(leave, c_.now_);
  EXPECT_EQ(c_.Status(job_).recovery().worker_losses(), 1u);
}

TEST(MemberCallsTest, ARepeatedRegistrationGetsTheSameSecretAndAnotherLifeAnotherOne) {
  FakeCluster c;
  RegisterRequest self = FakeCluster::Registration(ROLE_WORKER, 0);
  const std::string first = c.core_.Register(self, c.now_)->secret();
  EXPECT_GE(first.size(), 16u);
  EXPECT_EQ(c.core_.Register(self, c.now_)->secret(), first);
  self.set_ended_pid(self.pid());
  self.set_life(7);
  const std::string next = c.core_.Register(self, c.now_)->secret();
  EXPECT_NE(next, first);
  EXPECT_NE(next, "");
}

TEST(MemberCallsTest, OnlyABelievedNewcomerTakesThePlaceOfALivingMember) {
  FakeCluster c;
  const uint64_t incumbent = c.Join(ROLE_WORKER, 0);
  RegisterRequest newcomer = FakeCluster::Registration(ROLE_WORKER, 0, /*pid=*/2);
  newcomer.set_ended_pid(1);
  RegisterNotes notes;
  EXPECT_EQ(c.core_.Register(newcomer, c.now_, /*believed=*/false, &notes)->member_id(), 0u);
  EXPECT_TRUE(notes.disbelieved);
  EXPECT_EQ(notes.replaced, "");
  EXPECT_TRUE(c.Poll(incumbent).ok());
  EXPECT_NE(c.core_.Register(newcomer, c.now_, /*believed=*/true, &notes)->member_id(), 0u);
  EXPECT_FALSE(notes.disbelieved);
  EXPECT_THAT(notes.replaced, HasSubstr("worker 0 (pid 1"));
  EXPECT_TRUE(absl::IsAborted(c.Poll(incumbent).status()));
}

TEST(MemberCallsTest, DesiredStateIsSentOncePerVersion) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  c.Run(FakeCluster::Config(0, 1));
  PollRequest request;
  request.set_member_id(c.pservers_[0]);
  const PollReply first = *c.core_.Poll(request, c.now_);
  EXPECT_EQ(first.host_size(), 1);
  request.set_seen_version(first.version());
  const PollReply again = *c.core_.Poll(request, c.now_);
  EXPECT_EQ(again.version(), first.version());
  EXPECT_EQ(again.host_size(), 0);
}

}  // namespace
}  // namespace sluice

#include "scheduler/scheduler_core.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/job_passes.h"
#include "common/security/refusal_reason.h"
#include "model/eval/eval_accumulator.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// Reports the end of INDEX for both ranks of a sync job and returns the TRAIN phase.
Phase StartTraining(FakeCluster* c, const std::string& job) {
  EXPECT_EQ(c->Phase(job, 0)->phase().kind(), Phase::INDEX);
  EXPECT_FALSE(c->Phase(job, 0, Indexed(50, 0))->ready());
  return c->Phase(job, 1, Indexed(50, 1))->phase();
}

GetRouteRequest RouteRequest(const WorkerAssignment& assigned) {
  GetRouteRequest request;
  request.set_job_id(assigned.job().job_id());
  request.set_rank(assigned.rank());
  request.set_incarnation(assigned.incarnation());
  request.set_pass(assigned.pass());
  return request;
}

TEST(SchedulerCoreTest, EachMemberGetsTheSecretOfItsPlaceAlone) {
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

TEST(SchedulerCoreTest, AWorkerCallsOnlyForTheRankOfItsPass) {
  SchedulerCore::Options options = FakeCluster::Options(1, 2);
  options.pass_key = std::string(32, 'k');
  FakeCluster c(options);
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::INDEX);
  std::string& shown = c.core_.passes().at({job, 0, c.Incarnation(job, 0)});
  const std::string own = shown;
  shown = c.desired_[c.workers_[1]].assignment().pass();
  EXPECT_EQ(c.Phase(job, 0, Indexed(50, 0)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.Task(job, 0, 0, 0).status().code(), absl::StatusCode::kPermissionDenied);
  shown = own;
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::INDEX) << "the report did not count";
}

TEST(SchedulerCoreTest, ACallOfAnEarlierLifeOfARankMayBeLateAndOneOfALaterLifeIsNot) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  NextTaskRequest request;
  request.set_job_id(c.Run(FakeCluster::Config(0, 2)));
  const uint64_t now = c.Incarnation(request.job_id(), 0);
  request.set_incarnation(now - 1);
  const absl::Status earlier = c.core_.NextTask(request, c.now_).status();
  EXPECT_TRUE(absl::IsAborted(earlier)) << earlier;
  EXPECT_EQ(CauseOf(earlier), std::nullopt);
  request.set_incarnation(now + 1);
  const absl::Status later = c.core_.NextTask(request, c.now_).status();
  EXPECT_TRUE(absl::IsAborted(later)) << later;
  EXPECT_EQ(CauseOf(later), RefusalReason::kPass);
}

TEST(SchedulerCoreTest, OnlyWorkersOfAJobLearnItsRoute) {
  FakeCluster c(2, 4);
  c.JoinAll(2, 4);
  JobConfig config = FakeCluster::Config(-1, 2);
  config.mutable_recovery()->set_max_losses(3);
  const std::string job = c.Run(config);
  const WorkerAssignment assigned = c.desired_[c.workers_[0]].assignment();
  GetRouteRequest request;
  request.set_job_id(job);
  request.set_incarnation(assigned.incarnation());
  EXPECT_TRUE(absl::IsPermissionDenied(c.core_.GetRoute(request).status()));
  request.set_incarnation(assigned.incarnation() + 1);
  EXPECT_TRUE(absl::IsAborted(c.core_.GetRoute(request).status())) << "as for a fenced rank";
  request = RouteRequest(assigned);
  request.set_rank(1);  // of another worker, with this one's pass
  EXPECT_FALSE(c.core_.GetRoute(request).ok());

  const GetRouteRequest own = RouteRequest(assigned);
  const auto reply = c.core_.GetRoute(own);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->route().pservers_size(), 2);
  // A rank that a loss has withdrawn may still look for its pservers.
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(0);
  ended.set_pid(1);
  ended.set_process_space("space");
  ended.set_reason("its process was killed by signal 9");
  c.core_.MemberEnded(ended, c.now_);
  ASSERT_EQ(c.Status(job).state(), JOB_RECOVERING);
  EXPECT_TRUE(c.core_.GetRoute(own).ok());
}

TEST(SchedulerCoreTest, ACallWithoutTheSecretOfItsMemberChangesNothing) {
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
    EXPECT_TRUE(denied(core.Poll(poll, c.now_).status()));
    LeaveRequest leave;
    leave.set_member_id(c.workers_[0]);
    leave.set_secret(secret);
    EXPECT_TRUE(denied(core.Leave(leave, c.now_)));
    FailJobRequest fail;
    fail.set_member_id(c.workers_[0]);
    fail.set_secret(secret);
    fail.set_job_id(job);
    fail.set_incarnation(c.Incarnation(job, 0));
    EXPECT_TRUE(denied(core.FailJob(fail, c.now_)));
    DrainPserverRequest drain;
    drain.set_rank(0);
    drain.set_member_id(c.pservers_[0]);
    drain.set_secret(secret);
    EXPECT_TRUE(denied(core.DrainPserver(drain, c.now_).status()));
    core.ConnectionBroke(c.workers_[0], secret, c.now_);
  }
  c.Advance(absl::Seconds(5));  // longer than a member has to come back after its connection broke
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  const ClusterStatus status = core.GetStatus(c.now_);
  for (const MemberStatus& member : status.members()) {
    EXPECT_TRUE(member.alive()) << member.ShortDebugString();
    EXPECT_FALSE(member.draining());
    EXPECT_NE(member.doing(), "nothing");
  }
  EXPECT_TRUE(c.Poll(c.workers_[0]).ok());
}

TEST(SchedulerCoreTest, ARepeatedRegistrationGetsTheSameSecretAndAnotherLifeAnotherOne) {
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

TEST(SchedulerCoreTest, OnlyABelievedNewcomerTakesThePlaceOfALivingMember) {
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

TEST(SchedulerCoreTest, SyncJobFromSubmissionToResult) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2, 2));
  EXPECT_EQ(c.Status(job).route().pservers(0), "ps0");
  Phase phase = StartTraining(&c, job);
  EXPECT_EQ(phase.kind(), Phase::TRAIN);
  EXPECT_EQ(phase.global_steps(), 5u);
  EXPECT_EQ(phase.first_step(), 0u);
  c.Advance(absl::Seconds(4));
  c.PollAll();
  EXPECT_THAT(c.Phase(job, 0, Trained(2, 50))->waiting_for(), HasSubstr("rank 1 (worker 1"));
  EXPECT_THAT(c.Status(job).waiting_for(),
              AllOf(HasSubstr("waits for rank 1 (worker 1"), HasSubstr("to end phase train")));
  EXPECT_EQ(c.Phase(job, 1, Trained(2, 50))->phase().kind(), Phase::EVAL);
  c.Advance(absl::Seconds(1));
  c.Phase(job, 0, Ended(3)).status().IgnoreError();
  phase = c.Phase(job, 1, Ended(3))->phase();
  EXPECT_EQ(phase.first_step(), 5u);
  EXPECT_EQ(phase.epoch(), 1u);
  c.Advance(absl::Seconds(2));
  c.Phase(job, 0, Trained(4, 50)).status().IgnoreError();
  c.Phase(job, 1, Trained(4, 50)).status().IgnoreError();
  c.Phase(job, 0, Ended(5)).status().IgnoreError();
  phase = c.Phase(job, 1, Ended(5))->phase();
  EXPECT_EQ(phase.kind(), Phase::SAVE);
  EXPECT_EQ(phase.global_step(), 10u);
  EXPECT_EQ(phase.model_dir(), "/output/job-1/model");
  PhaseReport saved = Ended(6);
  saved.mutable_save()->set_model_digest("d1");
  c.Phase(job, 0, saved).status().IgnoreError();
  EXPECT_FALSE(c.Phase(job, 1, Ended(6))->ready());  // the job waits for fresh reports
  c.PollAll();
  EXPECT_EQ(c.Phase(job, 1, Ended(6))->phase().kind(), Phase::FINISH);
  EXPECT_EQ(c.Phase(job, 0, Ended(6))->phase().kind(), Phase::FINISH);
  EXPECT_EQ(c.State(job), JOB_RUNNING);  // until the result is written
  c.WriteOutputs();
  const JobStatus status = c.Status(job);
  EXPECT_EQ(status.state(), JOB_DONE);
  EXPECT_EQ(status.result().status(), "done");
  EXPECT_EQ(status.result().examples(), 200u);
  EXPECT_EQ(status.result().seconds(), 6.0);
  EXPECT_EQ(status.result().model_digest(), "d1");
  EXPECT_EQ(status.result().staleness().pushes(), 3u);
  c.PollAll();
  for (const uint64_t id : c.pservers_) EXPECT_EQ(c.desired_[id].host_size(), 0);
  for (const uint64_t id : c.workers_) EXPECT_FALSE(c.desired_[id].has_assignment());
}

TEST(SchedulerCoreTest, SpansGoToTheTraceAndTheJobWaitsForTheLastOnes) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  JobConfig config = FakeCluster::Config(-1, 1);
  const std::string untraced = c.Run(config);
  config.set_trace_file("/trace");
  const std::string job = c.Run(config);
  c.WriteOutputs();
  const auto report = [&](uint64_t member, const std::string& of) {
    PollRequest request;
    request.set_member_id(member);
    request.set_seen_version(c.desired_[member].version());
    request.add_traces()->set_job_id(of);
    c.core_.Poll(request, c.now_).status().IgnoreError();
    std::vector<uint64_t> members;
    for (const OutputAction& action : c.core_.TakeActions()) {
      if (action.kind != OutputAction::kTrace) continue;
      EXPECT_EQ(action.job_id, of);
      members.push_back(action.trace.member_id);
    }
    return members;
  };
  EXPECT_THAT(report(c.workers_[1], job), testing::ElementsAre(c.workers_[1]));
  EXPECT_THAT(report(c.pservers_[0], job), testing::ElementsAre(c.pservers_[0]));
  EXPECT_THAT(report(c.workers_[0], job), testing::IsEmpty());  // it serves the other job
  EXPECT_THAT(report(c.workers_[0], untraced), testing::IsEmpty());
  EXPECT_THAT(report(c.workers_[0], "no job"), testing::IsEmpty());

  c.Phase(job, 0, Indexed(10, 0, 1)).status().IgnoreError();
  c.Phase(job, 0, Trained(2, 10)).status().IgnoreError();
  c.PollAll();
  c.Phase(job, 0, Ended(3)).status().IgnoreError();
  EXPECT_FALSE(c.Phase(job, 0, Ended(4))->ready());  // all phases are done
  EXPECT_THAT(report(c.workers_[1], job), testing::ElementsAre(c.workers_[1]));
  c.PollAll();
  EXPECT_EQ(c.Phase(job, 0, Ended(4))->phase().kind(), Phase::FINISH);
}

// Trains a whole async or Geo epoch in which rank 0 takes all tasks and rank 1 none.
void TrainAlone(FakeCluster* c, const std::string& job) {
  PhaseReport index = Ended(1);
  DataFile* file = index.mutable_index()->add_files();
  file->set_path("a");
  file->set_bytes(250);
  c->Phase(job, 0, index).status().IgnoreError();
  EXPECT_EQ(c->Phase(job, 1, Ended(1))->phase().kind(), Phase::TRAIN);
  uint64_t finished = 0;
  for (int i = 0; i < 3; ++i) {
    const auto task = c->Task(job, 0, 0, finished);
    ASSERT_EQ(task->kind(), NextTaskReply::TASK);
    finished = task->task().id();
  }
  // Rank 1 may end its epoch while rank 0 holds the last task.
  EXPECT_EQ(c->Task(job, 1, 0, 0)->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_FALSE(c->Phase(job, 1, Trained(2, 0))->ready());
  EXPECT_TRUE(absl::IsFailedPrecondition(c->Phase(job, 0, Trained(2, 9)).status()));
  EXPECT_EQ(c->Task(job, 0, 0, finished)->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_EQ(c->Phase(job, 0, Trained(2, 9))->phase().kind(), Phase::EVAL);
  EXPECT_EQ(c->Status(job).examples(), 9u);
}

TEST(SchedulerCoreTest, AsyncWorkerWithoutTasksEndsItsEpoch) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  TrainAlone(&c, job);
  EXPECT_EQ(c.Status(job).mode(), "async");
}

TEST(SchedulerCoreTest, GeoLeasesTasksLikeAsync) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(20, 2));
  TrainAlone(&c, job);
  EXPECT_EQ(c.Status(job).mode(), "geo");
}

TEST(SchedulerCoreTest, RepeatedReportsChangeNothing) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  StartTraining(&c, job);
  EXPECT_EQ(c.Phase(job, 0, Indexed(50, 0))->phase().kind(), Phase::TRAIN);
  c.Phase(job, 0, Trained(2, 50)).status().IgnoreError();
  c.Phase(job, 0, Trained(2, 50)).status().IgnoreError();
  c.Phase(job, 1, Trained(2, 50)).status().IgnoreError();
  EXPECT_EQ(c.Phase(job, 0, Trained(2, 50))->phase().kind(), Phase::EVAL);
  EXPECT_EQ(c.Status(job).examples(), 100u);
}

TEST(SchedulerCoreTest, StaleIncarnationIsRefused) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  NextPhaseRequest request;
  request.set_job_id(job);
  request.set_incarnation(c.Incarnation(job, 0) + 77);
  EXPECT_TRUE(absl::IsAborted(c.core_.NextPhase(request, c.now_).status()));
  request.set_rank(2);
  EXPECT_TRUE(absl::IsInvalidArgument(c.core_.NextPhase(request, c.now_).status()));
  request.set_job_id("none-1");
  EXPECT_TRUE(absl::IsNotFound(c.core_.NextPhase(request, c.now_).status()));
}

TEST(SchedulerCoreTest, RanksThatCountedDifferentDataFailTheJob) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  c.Phase(job, 0, Indexed(50, 0)).status().IgnoreError();
  EXPECT_EQ(c.Phase(job, 1, Indexed(50, 2))->phase().kind(), Phase::FINISH);
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), AllOf(HasSubstr("train.csv"), HasSubstr("rank 1")));
}

TEST(SchedulerCoreTest, DataWithTooManyTasksEndsTheJobForAllRanksAndTheNextOneRuns) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  PhaseReport huge = Ended(1);
  DataFile* const file = huge.mutable_index()->add_files();
  file->set_path("huge");
  file->set_bytes(uint64_t{1} << 62);
  EXPECT_FALSE(c.Phase(job, 0, huge)->ready());
  EXPECT_EQ(c.Phase(job, 1, Ended(1))->phase().kind(), Phase::FINISH);
  EXPECT_EQ(c.Phase(job, 0, huge)->phase().kind(), Phase::FINISH);
  // No later scheduler runs it again: what was kept of the run is deleted.
  std::map<std::string, bool> kept;
  for (const MetaStore::Write& record : c.core_.TakeRecords())
    kept[record.key] = record.value.has_value();
  EXPECT_GT(kept.count(absl::StrCat("index/", job, "/0")), 0u);
  for (const auto& [key, is_kept] : kept) {
    if (absl::StartsWith(key, "job/") || key == "next") continue;
    EXPECT_FALSE(is_kept) << key;
  }
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("data.task_bytes"));
  c.PollAll();
  c.Run(FakeCluster::Config(0, 2));
}

TEST(SchedulerCoreTest, ReportedFailureEndsTheJobForAll) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  FailJobRequest request;
  request.set_job_id(job);
  request.set_member_id(c.workers_[1]);
  request.set_message("file x is missing");
  request.set_incarnation(c.Incarnation(job, 1) + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(c.core_.FailJob(request, c.now_))) << "of another life";
  request.set_incarnation(c.Incarnation(job, 1));
  ASSERT_TRUE(c.core_.FailJob(request, c.now_).ok());
  c.WriteOutputs();
  EXPECT_THAT(c.Status(job).message(), AllOf(HasSubstr("worker 1 (pid 1 on host h) of job job-1"),
                                             HasSubstr("file x is missing")));
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::FINISH);
  EXPECT_TRUE(absl::IsCancelled(c.Task(job, 0, 0, 0).status()));
}

TEST(SchedulerCoreTest, PserverThatCannotOpenTheTablesFailsTheJob) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = *c.Submit(FakeCluster::Config(0, 2));
  PollRequest request;
  request.set_member_id(c.pservers_[0]);
  HostedJob* hosted = request.add_hosted();
  hosted->set_job_id(job);
  hosted->set_generation(1);
  hosted->set_instance(c.core_.Desired(c.pservers_[0])->host(0).instance());
  hosted->set_error("out of memory");
  ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("pserver 0 (ps0, pid 1 on host h)"));
  EXPECT_THAT(c.Status(job).message(), HasSubstr("out of memory"));
}

// Pserver 0 has seen the longest waits, and pserver 1 waits now.
TEST(SchedulerCoreTest, StatusSaysWhatAnyPserverWaitsFor) {
  FakeCluster c(2, 2);
  c.JoinAll(2, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  StartTraining(&c, job);
  for (int i = 0; i < 2; ++i) {
    PollRequest request;
    request.set_member_id(c.pservers_[i]);
    HostedJob* hosted = request.add_hosted();
    hosted->set_job_id(job);
    hosted->set_generation(1);
    hosted->set_instance(c.desired_[c.pservers_[i]].host(0).instance());
    hosted->set_slowest_rank(i);
    hosted->set_slowest_wait_s(i == 0 ? 4 : 1);
    if (i == 1) hosted->set_waiting_for("commit 7 of rank 1 (0.5 s)");
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  }
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("slowest: rank 0 (worker 0"));
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("commit 7 of rank 1 (0.5 s)"));
}

// Each point of the speed sums what the ranks measured over the steps before it, whatever their
// latest report says when the point is made.
TEST(SchedulerCoreTest, SpeedPointsBelongToTheirOwnSteps) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  c.core_.TakeActions();
  const auto report = [&](uint32_t rank, uint64_t step, std::vector<double> speeds) {
    PollRequest request;
    request.set_member_id(c.workers_[rank]);
    WorkerProgress* progress = request.mutable_progress();
    progress->set_job_id(job);
    progress->set_rank(rank);
    progress->set_incarnation(c.Incarnation(job, rank));
    for (const double speed : speeds) {
      StepLoss* loss = progress->add_losses();
      loss->set_step(step += 10);
      loss->set_examples_per_second(speed);
    }
    progress->set_step(step + 3);
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  };
  report(0, 0, {});          // nothing is known yet
  report(0, 0, {100, 110});  // steps 10 and 20
  report(1, 0, {200});
  report(1, 10, {210});
  report(0, 20, {});  // no step since then
  report(1, 20, {220});
  std::vector<std::pair<uint64_t, double>> speeds;
  for (const OutputAction& action : c.core_.TakeActions()) {
    for (const Scalar& point : action.scalars) {
      if (point.tag == "train/examples_per_second") speeds.emplace_back(point.step, point.value);
    }
  }
  EXPECT_EQ(speeds, (std::vector<std::pair<uint64_t, double>>{{10, 300}, {20, 320}}));
}

TEST(SchedulerCoreTest, EpochsOfStatusAndResultCountFromOne) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2, 2));
  EXPECT_EQ(c.Status(job).epoch(), 1u);
  const Phase phase = StartTraining(&c, job);
  PollRequest request;
  request.set_member_id(c.workers_[0]);
  request.mutable_progress()->set_job_id(job);
  request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
  request.mutable_progress()->set_epoch(1);
  request.mutable_progress()->set_examples(7);
  ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  EXPECT_EQ(c.Status(job).epoch(), 1u);
  EXPECT_EQ(c.Status(job).examples_in_epoch(), 7u);
  for (const uint32_t rank : {0, 1})
    c.Phase(job, rank, Trained(phase.number(), 50)).status().IgnoreError();
  EvalAccumulator sums;
  sums.Add(1.0f, 1.0f, 1.0f);
  PhaseReport evaluated = Ended(phase.number() + 1);
  *evaluated.mutable_eval() = sums.ToProto();
  for (const uint32_t rank : {0, 1}) c.Phase(job, rank, evaluated).status().IgnoreError();
  EXPECT_EQ(c.Status(job).epoch(), 2u);
  EXPECT_EQ(c.Status(job).epochs_log(0).epoch(), 1u);
  std::map<std::string, uint64_t> steps;
  for (const OutputAction& action : c.core_.TakeActions()) {
    for (const Scalar& point : action.scalars) steps[point.tag] = point.step;
  }
  EXPECT_EQ(steps["train/epoch_loss"], 1u);
  EXPECT_EQ(steps["eval/log_loss"], 1u);
}

TEST(SchedulerCoreTest, DesiredStateIsSentOncePerVersion) {
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

TEST(SchedulerCoreTest, EventsNameWhatTheyChanged) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  const auto changed = [&c] {
    std::set<std::string> names;
    for (const WaitKey& key : c.core_.TakeChanged()) {
      const char* kinds[] = {"member ", "phase ", "status "};
      names.insert(absl::StrCat(kinds[key.kind],
                                key.member_id > 0 ? absl::StrCat(key.member_id) : key.job_id));
    }
    return names;
  };
  const std::string pserver = absl::StrCat("member ", c.pservers_[0]);
  const std::string worker0 = absl::StrCat("member ", c.workers_[0]);
  const std::string worker1 = absl::StrCat("member ", c.workers_[1]);
  changed();
  ASSERT_TRUE(c.Poll(c.workers_[0]).ok());
  EXPECT_THAT(changed(), testing::IsEmpty());
  ASSERT_TRUE(c.Submit(FakeCluster::Config(-1, 2)).ok());
  EXPECT_THAT(changed(), testing::UnorderedElementsAre(pserver, "status job-1"));
  c.PollAll();
  EXPECT_THAT(changed(),
              testing::UnorderedElementsAre(worker0, worker1, "phase job-1", "status job-1"));
  // Watchers learn of progress ten times a second, however many workers report it.
  ASSERT_TRUE(c.Poll(c.workers_[0]).ok());
  ASSERT_TRUE(c.Poll(c.workers_[1]).ok());
  EXPECT_THAT(changed(), testing::IsEmpty());
  c.Advance(absl::Milliseconds(100));
  EXPECT_THAT(changed(), testing::UnorderedElementsAre("status job-1"));
  c.Advance(absl::Milliseconds(100));
  EXPECT_THAT(changed(), testing::IsEmpty());
  ASSERT_TRUE(c.Phase("job-1", 0, Indexed(100)).ok());
  EXPECT_THAT(changed(), testing::IsEmpty());
  ASSERT_TRUE(c.Phase("job-1", 1, Indexed(100, 1)).ok());
  EXPECT_THAT(changed(), testing::UnorderedElementsAre("phase job-1", "status job-1"));
  ASSERT_TRUE(c.core_.CancelJob("job-1", c.now_).ok());
  EXPECT_THAT(changed(),
              testing::UnorderedElementsAre(worker0, worker1, "phase job-1", "status job-1"));
}

TEST(SchedulerCoreTest, StepsThatAreReportedAgainCountOnce) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  PollRequest request;
  request.set_member_id(c.workers_[0]);
  request.mutable_progress()->set_job_id(job);
  request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
  for (const uint64_t step : {5, 10}) {
    request.mutable_progress()->add_losses()->set_step(step);
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  }
  WatchJobRequest watch;
  watch.set_job_id(job);
  const WatchJobReply steps = *c.core_.WatchJob(watch);
  ASSERT_EQ(steps.steps_size(), 2);
  EXPECT_EQ(steps.steps(0).step(), 5u);
  EXPECT_EQ(steps.steps(1).step(), 10u);
}

TEST(SchedulerCoreTest, WatchersGetEachReportedStepOnce) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  const auto report = [&](uint64_t first, uint64_t last) {
    PollRequest request;
    request.set_member_id(c.workers_[0]);
    request.mutable_progress()->set_job_id(job);
    request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
    for (uint64_t step = first; step <= last; ++step) {
      request.mutable_progress()->add_losses()->set_step(step);
    }
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  };
  WatchJobRequest watch;
  watch.set_job_id(job);
  EXPECT_EQ(c.core_.WatchJob(watch)->steps_size(), 0);
  report(1, 3);
  const WatchJobReply first = *c.core_.WatchJob(watch);
  ASSERT_EQ(first.steps_size(), 3);
  EXPECT_EQ(first.steps(0).step(), 1u);
  watch.set_seen_steps(first.steps_seen());
  EXPECT_EQ(c.core_.WatchJob(watch)->steps_size(), 0);
  report(4, 3 + 2 * StepReports::kRecent);
  const WatchJobReply newest = *c.core_.WatchJob(watch);
  ASSERT_EQ(newest.steps_size(), static_cast<int>(StepReports::kRecent));
  EXPECT_EQ(newest.steps(0).step(), 4 + StepReports::kRecent);
  EXPECT_EQ(newest.steps_seen(), 3 + 2 * StepReports::kRecent);
}

TEST(SchedulerCoreTest, ShutdownStopsWorkersBeforePserversAndEnds) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  c.core_.Shutdown(c.now_);
  EXPECT_TRUE(c.Poll(c.workers_[0])->stop());
  EXPECT_FALSE(c.Poll(c.pservers_[0])->stop());
  EXPECT_FALSE(c.core_.Register(RegisterRequest(), c.now_).ok());
  for (const uint64_t id : c.workers_) {
    LeaveRequest leave;
    leave.set_member_id(id);
    c.core_.Leave(leave, c.now_);
  }
  EXPECT_TRUE(c.Poll(c.pservers_[0])->stop());
  EXPECT_FALSE(c.core_.CanEnd(c.now_));
  LeaveRequest leave;
  leave.set_member_id(c.pservers_[0]);
  c.core_.Leave(leave, c.now_);
  EXPECT_FALSE(c.core_.CanEnd(c.now_));  // the result is not written
  c.WriteOutputs();
  EXPECT_TRUE(c.core_.CanEnd(c.now_));
  EXPECT_EQ(c.State(job), JOB_CANCELLED);
}

TEST(SchedulerCoreTest, ShutdownIsBoundedWhenMembersDoNotLeave) {
  FakeCluster c;
  c.JoinAll(1, 2);
  c.core_.Shutdown(c.now_);
  c.Advance(absl::Seconds(3));
  EXPECT_TRUE(c.Poll(c.pservers_[0])->stop());
  EXPECT_FALSE(c.core_.CanEnd(c.now_));
  c.Advance(absl::Seconds(2));
  EXPECT_TRUE(c.core_.CanEnd(c.now_));
}

TEST(SchedulerCoreTest, StatusShowsMembersAndAllocation) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  const ClusterStatus status = c.core_.GetStatus(c.now_);
  ASSERT_EQ(status.members_size(), 3);
  EXPECT_EQ(status.members(1).job_id(), job);
  EXPECT_EQ(status.members(2).job_id(), "");
  EXPECT_THAT(status.jobs(0).allocated(), testing::ElementsAre(0));
  EXPECT_EQ(status.jobs(0).workers_alive(), 1u);
}

}  // namespace
}  // namespace sluice

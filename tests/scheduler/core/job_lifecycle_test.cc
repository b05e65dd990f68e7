#include "scheduler/core/job_lifecycle.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <algorithm>
#include <set>

#include "common/saved_model/checkpoint.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(JobLifecycleTest, WorkerIsFreeOnlyAfterItReportsThatItHasStopped) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string a = c.Run(FakeCluster::Config(0, 1));
  const std::string b = *c.Submit(FakeCluster::Config(0, 1));
  ASSERT_TRUE(c.core_.operators().CancelJob(a, c.now_).ok());
  const PollReply told = *c.Poll(c.workers_[0]);
  EXPECT_FALSE(told.has_assignment());
  PollRequest busy;  // it still runs the old job
  busy.set_member_id(c.workers_[0]);
  busy.set_seen_version(told.version());
  busy.mutable_progress()->set_job_id(a);
  ASSERT_TRUE(c.core_.Poll(busy, c.now_).ok());
  EXPECT_EQ(c.State(b), JOB_QUEUED);
  c.PollAll();
  EXPECT_EQ(c.State(b), JOB_RUNNING);
}

TEST(JobLifecycleTest, ATableThatIsNearlyFullIsWarnedOfOnce) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  JobConfig config = FakeCluster::Config(0, 1);
  TableConfig* const table = config.add_tables();
  table->set_name("e");
  table->set_kind(TableConfig::SPARSE);
  table->set_max_rows(100);
  const std::string job = c.Run(config);
  const auto report = [&](uint64_t rows) {
    HostedJob more;
    TableStatus* const shards = more.add_tables();
    shards->set_name("e");
    shards->set_kind(TableConfig::SPARSE);
    shards->set_rows(rows);
    shards->set_shards(1);
    shards->set_row_limit(100);
    shards->mutable_turnover()->set_refused(5);
    c.hosted_more_[c.pservers_[0]] = more;
    c.PollAll();
    return c.Status(job).warnings_size();
  };
  c.core_.TakeLines();
  EXPECT_EQ(report(89), 0);
  EXPECT_EQ(report(90), 1);
  EXPECT_EQ(report(95), 1);
  EXPECT_THAT(c.Status(job).warnings(0), HasSubstr("max_rows, 100"));
  int logged = 0;
  for (const JobLine& line : c.core_.TakeLines())
    logged += line.text.find("max_rows, 100") != std::string::npos;
  EXPECT_EQ(logged, 1);
  // The result has the figures of the last report.
  ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());
  JobResult result;
  for (const OutputAction& action : c.WriteOutputs())
    if (action.kind == OutputAction::kEnded) result = action.result;
  ASSERT_EQ(result.tables_size(), 1);
  EXPECT_EQ(result.tables(0).rows(), 95u);
  EXPECT_EQ(result.tables(0).turnover().refused(), 5u);
}

TEST(JobLifecycleTest, AJobRunsOnlyWhenItsFolderIsReady) {
  FakeCluster c(1, 1);
  c.outputs_begin_ = false;
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  c.PollAll();
  EXPECT_EQ(c.State(job), JOB_STARTING);
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("/output/job-1"));
  EXPECT_FALSE(c.Poll(c.workers_[0])->has_assignment());
  c.core_.OutputBegun(job, c.now_);
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  EXPECT_TRUE(c.Poll(c.workers_[0])->has_assignment());
}

TEST(JobLifecycleTest, AFolderThatIsNeverReadyFailsTheJobAndIsNamed) {
  FakeCluster c(1, 1);
  c.outputs_begin_ = false;
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  for (int i = 0; i < 122; ++i) {
    c.PollAll();
    c.Advance(absl::Seconds(1));
  }
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("output_dir /output/job-1"));
}

// Sends the report of a pserver that fills the job's tables from its initial model.
void PollLoading(FakeCluster* c, uint64_t pserver, const std::string& job, uint64_t loaded) {
  PollRequest request;
  request.set_member_id(pserver);
  const auto desired = c->core_.members().Desired(pserver);
  ASSERT_TRUE(desired.ok()) << desired.status();
  // The pserver shall not host an ended job any more.
  for (const JobSpec& spec : desired->host()) {
    HostedJob* hosted = request.add_hosted();
    hosted->set_job_id(job);
    hosted->set_instance(spec.instance());
    hosted->set_loaded_bytes(loaded << 20);
    hosted->set_load_bytes(uint64_t{1000} << 20);
  }
  ASSERT_TRUE(c->core_.Poll(request, c->now_).ok());
}

class LoadingJobTest : public testing::Test {
 protected:
  LoadingJobTest() : c_(2, 1) {
    c_.JoinAll(2, 1);
    JobConfig config = FakeCluster::Config(0, 1);
    config.set_initial_model("/the/model");
    job_ = *c_.Submit(config);
  }
  // Lets five seconds pass, after which the pservers have read this much.
  void Pass(uint64_t loaded0, uint64_t loaded1) {
    PollLoading(&c_, c_.pservers_[0], job_, loaded0);
    PollLoading(&c_, c_.pservers_[1], job_, loaded1);
    ASSERT_TRUE(c_.Poll(c_.workers_[0]).ok());
    c_.Advance(absl::Seconds(5));
  }
  FakeCluster c_;
  std::string job_;
};

TEST_F(LoadingJobTest, AModelThatIsBeingReadExtendsTheWait) {
  for (uint64_t i = 1; i <= 100; ++i) Pass(i, 2 * i);  // 500 s
  EXPECT_EQ(c_.State(job_), JOB_STARTING);
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("100.0 of 1000.0 MiB"));
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("200.0 of 1000.0 MiB"));
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
}

TEST_F(LoadingJobTest, APserverThatStopsLoadingEndsTheJobAndIsNamed) {
  for (uint64_t i = 1; i <= 40; ++i) Pass(i, 7);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("pserver 1 "));
  EXPECT_THAT(c_.Status(job_).message(), testing::Not(HasSubstr("pserver 0 ")));
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("/the/model"));
}

TEST_F(LoadingJobTest, TheWaitRunsFromTheLastProgress) {
  for (uint64_t i = 1; i <= 10; ++i) Pass(i, i);
  for (int i = 0; i < 23; ++i) Pass(10, 10);  // 115 s
  EXPECT_EQ(c_.State(job_), JOB_STARTING);
  Pass(10, 10);
  Pass(10, 10);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
}

TEST_F(LoadingJobTest, ReportsThatOvertakeEachOtherAreNotProgress) {
  for (int i = 0; i < 30; ++i) Pass(5 + i % 2, 5 + i % 2);  // 150 s
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
}

TEST_F(LoadingJobTest, CancelDropsTheTablesOfLoadingPservers) {
  Pass(1, 1);
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  ASSERT_TRUE(c_.Poll(c_.workers_[0]).ok());
  ASSERT_TRUE(c_.Poll(c_.workers_[0]).ok());
  EXPECT_EQ(c_.core_.members().Desired(c_.pservers_[0])->host_size(), 0);
}

// A job that ends with its first loss.
JobConfig Fragile(int k_steps, uint32_t workers) {
  JobConfig config = FakeCluster::Config(k_steps, workers);
  config.mutable_recovery()->set_max_losses(0);
  return config;
}

// Leads a fresh cluster with one running job, which is Fragile, to a phase; phase 0: STARTING.
std::string LeadTo(FakeCluster* c, int phase) {
  c->JoinAll(2, 2);
  if (phase == 0) return *c->Submit(Fragile(-1, 2));
  const std::string job = c->Run(Fragile(-1, 2));
  for (int number = 1; number < phase; ++number) {
    for (const uint32_t rank : {0, 1}) {
      PhaseReport report = Indexed(50, rank);
      report.set_number(number);
      report.mutable_train()->set_examples(50);
      *report.mutable_eval() = Ended(number).eval();
      c->Phase(job, rank, report).status().IgnoreError();
    }
  }
  return job;
}

TEST(JobLifecycleTest, MemberLostInAnyPhaseEndsTheJobAndNamesIt) {
  for (int phase = 0; phase <= 4; ++phase) {
    for (const bool pserver : {false, true}) {
      FakeCluster c(2, 2);
      const std::string job = LeadTo(&c, phase);
      const uint64_t lost = pserver ? c.pservers_[1] : c.workers_[1];
      c.Advance(absl::Seconds(6));
      for (const auto& ids : {c.pservers_, c.workers_}) {
        for (const uint64_t id : ids) {
          if (id != lost && phase > 0) c.Poll(id).status().IgnoreError();
        }
      }
      c.Advance(absl::Seconds(4));
      c.WriteOutputs();
      ASSERT_EQ(c.State(job), JOB_FAILED) << "phase " << phase;
      if (phase == 0) continue;  // nobody has reported, so all are lost
      EXPECT_THAT(c.Status(job).message(),
                  testing::AllOf(HasSubstr(pserver ? "pserver 1 (ps1, pid 1 on host h) of job job-1"
                                                   : "worker 1 (pid 1 on host h) of job job-1"),
                                 HasSubstr("no heartbeat for 10 s")));
      EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::FINISH);
      c.PollAll();
      EXPECT_FALSE(c.desired_[c.workers_[0]].has_assignment());
      EXPECT_EQ(c.desired_[c.pservers_[0]].host_size(), 0);
      EXPECT_TRUE(absl::IsNotFound(c.core_.members().DesiredVersion(lost).status()));
    }
  }
}

// Polls for a worker that has seen its desired state and runs nothing.
absl::Status PollWithoutJob(FakeCluster* c, uint64_t worker) {
  PollRequest request;
  request.set_member_id(worker);
  request.set_seen_version(*c->core_.members().DesiredVersion(worker));
  return c->core_.Poll(request, c->now_).status();
}

TEST(JobLifecycleTest, AWorkerThatGivesUpEndsTheJobEvenIfItsReasonIsLost) {
  for (int phase = 1; phase <= 4; ++phase) {
    FakeCluster c(2, 2);
    const std::string job = LeadTo(&c, phase);
    for (int second = 0; second < 2; ++second) {
      ASSERT_TRUE(PollWithoutJob(&c, c.workers_[1]).ok());
      EXPECT_EQ(c.State(job), JOB_RUNNING) << "one report may be an old one";
      c.Advance(absl::Seconds(1));
    }
    ASSERT_TRUE(PollWithoutJob(&c, c.workers_[1]).ok());
    c.WriteOutputs();
    EXPECT_EQ(c.State(job), JOB_FAILED) << "phase " << phase;
    EXPECT_THAT(c.Status(job).message(), HasSubstr("worker 1 (pid 1 on host h) of job job-1"));
    c.PollAll();
    c.Run(FakeCluster::Config(0, 2));
  }
}

TEST(JobLifecycleTest, AWorkerThatStillReportsTheJobKeepsIt) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  for (int second = 0; second < 30; ++second) {
    if (second % 2 == 0) {
      ASSERT_TRUE(PollWithoutJob(&c, c.workers_[0]).ok());  // overtaken by the next one
    } else {
      c.PollAll();
    }
    ASSERT_TRUE(c.Poll(c.pservers_[0]).ok());
    c.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(c.State(job), JOB_RUNNING);
}

TEST(JobLifecycleTest, AWorkerThatNeverBeginsItsJobEndsIt) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(c.Poll(c.pservers_[0]).ok());
  ASSERT_EQ(c.State(job), JOB_RUNNING);
  for (int second = 0; second <= 10; ++second) {
    EXPECT_EQ(c.State(job), JOB_RUNNING) << second;
    ASSERT_TRUE(PollWithoutJob(&c, c.workers_[0]).ok());
    ASSERT_TRUE(c.Poll(c.pservers_[0]).ok());
    if (second < 10) c.Advance(absl::Seconds(1));
  }
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("worker 0 (pid 1 on host h)"));
}

TEST(JobLifecycleTest, SurvivorsRunTheNextJob) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  c.Run(Fragile(0, 2));
  LeaveRequest leave;
  leave.set_member_id(c.workers_[0]);
  leave.set_reason("told to");
  c.core_.Leave(leave, c.now_);
  c.WriteOutputs();
  EXPECT_THAT(c.Status("job-1").message(), HasSubstr("has left: told to"));
  c.PollAll();
  c.Run(FakeCluster::Config(0, 1));
}

TEST(JobLifecycleTest, ANewcomerWithAUsedRankIsRefusedWithoutHarm) {
  for (const Role role : {ROLE_WORKER, ROLE_PSERVER}) {
    FakeCluster c(1, 1);
    c.JoinAll(1, 1);
    const std::string job = c.Run(FakeCluster::Config(0, 1));
    const uint64_t incumbent = role == ROLE_WORKER ? c.workers_[0] : c.pservers_[0];
    c.Advance(absl::Seconds(2));
    const auto reply = c.core_.Register(FakeCluster::Registration(role, 0, /*pid=*/9), c.now_);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->member_id(), 0u);
    EXPECT_EQ(reply->secret(), "");
    EXPECT_EQ(reply->incumbent().pid(), 1u);
    EXPECT_EQ(reply->incumbent().host(), "h");
    EXPECT_EQ(reply->incumbent().process_space(), "space");
    EXPECT_EQ(reply->incumbent().last_seen_s(), 2.0);
    EXPECT_TRUE(c.Poll(incumbent).ok());
    EXPECT_EQ(c.State(job), JOB_RUNNING);
  }
}

TEST(JobLifecycleTest, ANewcomerTakesTheRankOfAProcessThatHasEnded) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(Fragile(0, 1));
  RegisterRequest newcomer = FakeCluster::Registration(ROLE_WORKER, 0, /*pid=*/9);
  newcomer.set_ended_pid(1);
  c.workers_.push_back(c.Join(newcomer));
  EXPECT_TRUE(absl::IsAborted(c.core_.members().Desired(c.workers_[0]).status()));
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("pid 9 on host h"));
  c.PollAll();
  c.Run(FakeCluster::Config(0, 1));
}

TEST(JobLifecycleTest, AReportedDeathEndsTheJobAtOnceWithItsReason) {
  FakeCluster c(2, 2);
  const std::string job = LeadTo(&c, 2);
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_rank(1);
  ended.set_pid(2);  // not the member's
  ended.set_process_space("space");
  ended.set_reason("its process was killed by signal 9 (Killed)");
  c.core_.members().MemberEnded(ended, c.now_);
  ended.set_pid(1);
  ended.set_process_space("elsewhere");
  c.core_.members().MemberEnded(ended, c.now_);
  ended.set_process_space("space");
  ended.set_rank(7);
  c.core_.members().MemberEnded(ended, c.now_);
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  ended.set_rank(1);
  c.core_.members().MemberEnded(ended, c.now_);
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(absl::IsNotFound(c.core_.members().DesiredVersion(c.workers_[1]).status()));
  c.core_.members().MemberEnded(ended, c.now_);  // it is gone already
}

TEST(JobLifecycleTest, OnlySilentMembersOfTheProcessSpaceAreListed) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  EXPECT_TRUE(c.core_.SilentMembers("space", c.now_).empty());
  c.Advance(absl::Seconds(2));  // two heartbeats
  c.Poll(c.pservers_[0]).status().IgnoreError();
  c.Poll(c.workers_[0]).status().IgnoreError();
  const std::vector<MemberEndedRequest> silent = c.core_.SilentMembers("space", c.now_);
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].role(), ROLE_WORKER);
  EXPECT_EQ(silent[0].rank(), 1u);
  EXPECT_EQ(silent[0].pid(), 1u);
  EXPECT_TRUE(c.core_.SilentMembers("elsewhere", c.now_).empty());
  EXPECT_TRUE(c.core_.SilentMembers("", c.now_).empty());
}

TEST(JobLifecycleTest, ASchedulerThatWasStoppedLosesNobody) {
  for (int phase = 0; phase <= 4; ++phase) {
    FakeCluster c(2, 2);
    const std::string job = LeadTo(&c, phase);
    c.Advance(absl::Seconds(9));  // their lease is nearly over
    c.Pause(absl::Seconds(300));  // longer than leases and the wait for tables
    EXPECT_FALSE(c.Status(job).has_result());
    c.Advance(absl::Milliseconds(9750));
    c.PollAll();
    EXPECT_EQ(c.State(job), JOB_RUNNING) << "phase " << phase << c.Status(job).message();
    // Members that stay silent are lost after one lease.
    c.Advance(absl::Seconds(10));
    c.WriteOutputs();
    EXPECT_EQ(c.State(job), JOB_FAILED) << "phase " << phase;
  }
}

TEST(JobLifecycleTest, AReportThatPrecedesTheTimerAfterAPauseJudgesNobody) {
  FakeCluster c(2, 1);
  c.JoinAll(2, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  c.now_ += absl::Seconds(300);
  PollRequest report;  // pserver 1 has not opened the tables yet
  report.set_member_id(c.pservers_[1]);
  ASSERT_TRUE(c.core_.Poll(report, c.now_).ok());
  c.PollAll();
  EXPECT_EQ(c.State(job), JOB_RUNNING) << c.Status(job).message();
}

TEST(JobLifecycleTest, TablesOfAnotherInstanceDoNotCount) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = *c.Submit(FakeCluster::Config(0, 1));
  const uint64_t instance = c.Poll(c.pservers_[0])->host(0).instance();
  EXPECT_NE(instance, 0u);
  // An earlier life of the scheduler used the same job_id and generation.
  PollRequest report;
  report.set_member_id(c.pservers_[0]);
  HostedJob* hosted = report.add_hosted();
  hosted->set_job_id(job);
  hosted->set_generation(1);
  hosted->set_instance(instance + 1);
  hosted->set_error("out of memory");
  ASSERT_TRUE(c.core_.Poll(report, c.now_).ok());
  EXPECT_EQ(c.State(job), JOB_STARTING) << c.Status(job).message();
  hosted->set_instance(instance);
  hosted->clear_error();
  ASSERT_TRUE(c.core_.Poll(report, c.now_).ok());
  EXPECT_EQ(c.State(job), JOB_RUNNING);
}

TEST(JobLifecycleTest, CancelWorksInEveryState) {
  for (int phase = -1; phase <= 4; ++phase) {
    FakeCluster c(2, 2);
    const std::string job = phase < 0 ? *c.Submit(FakeCluster::Config(-1, 2)) : LeadTo(&c, phase);
    ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());
    ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());  // repeatable
    const auto actions = c.WriteOutputs();
    EXPECT_EQ(actions.back().kind, OutputAction::kEnded);
    EXPECT_EQ(actions.back().result.status(), "cancelled");
    EXPECT_EQ(c.State(job), JOB_CANCELLED);
    EXPECT_TRUE(absl::IsFailedPrecondition(c.core_.operators().CancelJob(job, c.now_)));
    if (phase < 0) c.JoinAll(2, 2);
    c.PollAll();
    c.Run(FakeCluster::Config(0, 2));
  }
}

TEST(JobLifecycleTest, EndedJobIsNotCancelledAgain) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  c.core_.OutputFailed(job, absl::ResourceExhaustedError("disk full"), c.now_);
  c.WriteOutputs();
  EXPECT_EQ(c.Status(job).message(), "disk full");
  EXPECT_TRUE(absl::IsFailedPrecondition(c.core_.operators().CancelJob(job, c.now_)));
}

// Runs an evaluation by the only worker until its output is to be written.
std::string EvaluateToItsEnd(FakeCluster* c) {
  JobConfig config = FakeCluster::Config(0, 1);
  config.set_evaluate_only(true);
  const std::string job = c->Run(config);
  EXPECT_EQ(c->Phase(job, 0)->phase().kind(), Phase::INDEX);
  EXPECT_EQ(c->Phase(job, 0, Indexed(0))->phase().kind(), Phase::EVAL);
  EXPECT_EQ(c->Phase(job, 0, Ended(2))->phase().kind(), Phase::FINISH);
  return job;
}

TEST(JobLifecycleTest, ResultThatCannotBeWrittenFailsTheJob) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = EvaluateToItsEnd(&c);
  c.core_.OutputEnded(job, absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_EQ(c.Status(job).result().status(), "failed");
  EXPECT_THAT(c.Status(job).message(), HasSubstr("disk full"));
}

TEST(JobLifecycleTest, AJobHasNotEndedWhileThePlaceOfItsResultIsAway) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = EvaluateToItsEnd(&c);
  const uint64_t version = c.Status(job).version();
  c.core_.OutputAway(job, absl::InternalError("no answer"));
  EXPECT_EQ(c.State(job), JOB_RUNNING);
  EXPECT_GT(c.Status(job).version(), version);
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("no answer"));
  const absl::Status cancelled = c.core_.operators().CancelJob(job, c.now_);
  EXPECT_TRUE(absl::IsFailedPrecondition(cancelled));
  EXPECT_THAT(std::string(cancelled.message()), HasSubstr("when its place answers"));
  c.core_.OutputEnded(job, absl::OkStatus());
  EXPECT_EQ(c.State(job), JOB_DONE);
  EXPECT_EQ(c.Status(job).waiting_for(), "");
}

TEST(JobLifecycleTest, AWarningAboutTheOutputIsInStatusAndResult) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  const uint64_t version = *c.core_.operators().JobVersion(job);
  c.core_.Warn(job, "early");
  EXPECT_GT(*c.core_.operators().JobVersion(job), version);
  ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());
  c.core_.Warn(job, "late");
  c.WriteOutputs();
  EXPECT_THAT(c.Status(job).warnings(), testing::ElementsAre("early", "late"));
  EXPECT_THAT(c.Status(job).result().warnings(), testing::ElementsAre("early", "late"));
  c.core_.Warn("none", "of no job");
}

TEST(JobLifecycleTest, StuckWorkerDoesNotKeepTheTables) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_).ok());
  PollRequest busy;
  busy.set_member_id(c.workers_[0]);
  busy.mutable_progress()->set_job_id(job);
  for (int i = 0; i < 10; ++i) {
    c.Advance(absl::Seconds(1));
    ASSERT_TRUE(c.core_.Poll(busy, c.now_).ok());
    ASSERT_TRUE(c.Poll(c.pservers_[0]).ok());
  }
  EXPECT_EQ(c.desired_[c.pservers_[0]].host_size(), 0);
}

// Runs a job with a large configuration and many steps to its end.
std::string RunToTheEnd(FakeCluster* c) {
  JobConfig config = FakeCluster::Config(-1, 1);
  config.mutable_data()->clear_eval_files();  // evaluation sums take time
  for (int i = 0; i < 100; ++i) {
    config.add_features()->set_name(absl::StrCat("a feature with a name of its own ", i));
  }
  const std::string job = c->Run(config);
  PollRequest request;
  request.set_member_id(c->workers_[0]);
  request.mutable_progress()->set_job_id(job);
  request.mutable_progress()->set_incarnation(c->Incarnation(job, 0));
  for (uint64_t step = 1; step <= 1000; ++step) {
    request.mutable_progress()->add_losses()->set_step(step);
  }
  EXPECT_TRUE(c->core_.Poll(request, c->now_).ok());
  c->Phase(job, 0, Indexed(100, 0, 1)).status().IgnoreError();
  c->Phase(job, 0, Trained(2, 100)).status().IgnoreError();
  c->Phase(job, 0, Ended(3)).status().IgnoreError();
  c->PollAll();
  EXPECT_EQ(c->Phase(job, 0)->phase().kind(), Phase::FINISH);
  c->WriteOutputs();
  c->PollAll();
  c->Advance(absl::Milliseconds(100));
  c->core_.TakeRecords();  // as the loop does after every event
  c->incarnations_.clear();
  return job;
}

TEST(JobLifecycleTest, MemoryOfEndedJobsIsBounded) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 110; ++i) RunToTheEnd(&c);
  const size_t after_110 = mallinfo2().uordblks;
  for (int i = 0; i < 60; ++i) RunToTheEnd(&c);
  const size_t after_170 = mallinfo2().uordblks;
  EXPECT_EQ(c.core_.operators().GetStatus(c.now_).jobs_size(), 100);
  EXPECT_LT(after_110, before + (5 << 20));
  EXPECT_LT(after_170, after_110 + (256 << 10));
}

TEST(JobLifecycleTest, EndedJobsKeepTheirStatusForOperators) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string first = RunToTheEnd(&c);
  const JobStatus whole = c.Status(first);
  for (size_t i = 0; i < JobDirectory::kWholeJobs; ++i) RunToTheEnd(&c);
  const JobStatus kept = c.Status(first);
  EXPECT_EQ(kept.state(), JOB_DONE);
  EXPECT_EQ(kept.version(), whole.version());
  EXPECT_EQ(kept.result().SerializeAsString(), whole.result().SerializeAsString());
  EXPECT_EQ(kept.allocated_size(), 1);
  EXPECT_EQ(kept.mode(), "sync");
  EXPECT_EQ(kept.epochs_log_size(), 1);
  EXPECT_EQ(kept.config().output_dir(), whole.config().output_dir());
  EXPECT_EQ(whole.config().features_size(), 100);
  EXPECT_EQ(kept.config().features_size(), 0);
  // Calls about the job are still answered.
  WatchJobRequest watch;
  watch.set_job_id(first);
  EXPECT_EQ(c.core_.operators().WatchJob(watch)->status().state(), JOB_DONE);
  EXPECT_TRUE(absl::IsFailedPrecondition(c.core_.operators().CancelJob(first, c.now_)));
  GetRouteRequest route;
  route.set_job_id(first);
  EXPECT_TRUE(absl::IsNotFound(c.core_.workers().GetRoute(route).status()));
}

// Evaluations of both ranks with this share of wrong scores.
PhaseReport Evaluated(uint64_t number, double wrong) {
  EvalAccumulator sums;
  for (int i = 0; i < 100; ++i)
    sums.Add(i < 100 * wrong ? 2.0f : -2.0f, i % 10 == 9 ? 1.0f : 0.0f, 1.0f);
  PhaseReport report = Ended(number);
  *report.mutable_eval() = sums.ToProto();
  return report;
}

TEST(JobLifecycleTest, TheBestModelIsPutInForceAndEarlierOnesAreGivenUp) {
  FakeCluster c;
  c.JoinAll(1, 2);
  JobConfig config = FakeCluster::Config(-1, 2, 9);
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  config.mutable_train()->mutable_early_stop()->set_patience(1);
  const std::string job = c.Run(config);
  const auto end = [&](const PhaseReport& report) {
    EXPECT_TRUE(c.Phase(job, 0, report).ok());
    return c.Phase(job, 1, report)->phase();
  };
  Phase phase = StartTraining(&c, job);
  c.core_.TakeActions();
  std::vector<std::string> saves;
  for (const double wrong : {0.5, 0.2, 0.4}) {
    phase = end(Trained(phase.number(), 50));
    ASSERT_EQ(phase.kind(), Phase::EVAL);
    phase = end(Evaluated(phase.number(), wrong));
    if (wrong == 0.4) break;
    ASSERT_EQ(phase.kind(), Phase::SAVE);
    saves.push_back(phase.save_id());
    PhaseReport saved = Ended(phase.number());
    saved.mutable_save()->set_model_digest(absl::StrCat("of ", wrong));
    phase = end(saved);
    std::vector<OutputAction> kept;
    for (OutputAction& action : c.core_.TakeActions()) {
      if (action.kind == OutputAction::kModels) kept.push_back(std::move(action));
    }
    ASSERT_EQ(kept.size(), 1u);
    EXPECT_EQ(kept[0].number, saves.size());
    EXPECT_THAT(kept[0].save_ids, testing::Contains(saves.back()));
    ASSERT_EQ(kept[0].instances.size(), 1u);
    EXPECT_TRUE(IsModelSaveId(config, kept[0].instances[0], saves.back()));
  }
  c.PollAll();
  EXPECT_EQ(c.Phase(job, 1)->phase().kind(), Phase::FINISH);
  const std::vector<OutputAction> actions = c.WriteOutputs();
  const auto ended = std::find_if(actions.begin(), actions.end(), [](const OutputAction& action) {
    return action.kind == OutputAction::kEnded;
  });
  ASSERT_NE(ended, actions.end());
  EXPECT_NE(saves[0], saves[1]);
  EXPECT_EQ(ended->save_id, saves[1]);
  EXPECT_EQ(ended->result.model_digest(), "of 0.2");
  EXPECT_EQ(ended->result.status(), "done");
  EXPECT_TRUE(ended->result.stopped_early());
  EXPECT_EQ(ended->result.best().epoch(), 2u);
  EXPECT_EQ(ended->result.epochs(), 3u);
}

}  // namespace
}  // namespace sluice

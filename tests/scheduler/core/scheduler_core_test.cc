#include "scheduler/core/scheduler_core.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

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
  EXPECT_EQ(c.Phase(job, 0, Ended(6))->phase().failure(), "");
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

TEST(SchedulerCoreTest, RanksThatCountedDifferentDataFailTheJob) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  c.Phase(job, 0, Indexed(50, 0)).status().IgnoreError();
  const auto finish = c.Phase(job, 1, Indexed(50, 2));
  EXPECT_EQ(finish->phase().kind(), Phase::FINISH);
  // Programs must not take it for the end of a job that is done.
  EXPECT_THAT(finish->phase().failure(), AllOf(HasSubstr("failed: "), HasSubstr("train.csv")));
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
    if (absl::StartsWith(key, "job/") || absl::StartsWith(key, "config/") || key == "next")
      continue;
    EXPECT_FALSE(is_kept) << key;
  }
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("data.task_bytes"));
  c.PollAll();
  c.Run(FakeCluster::Config(0, 2));
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
  hosted->set_instance(c.core_.members().Desired(c.pservers_[0])->host(0).instance());
  hosted->set_error("out of memory");
  ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  c.WriteOutputs();
  EXPECT_EQ(c.State(job), JOB_FAILED);
  EXPECT_THAT(c.Status(job).message(), HasSubstr("pserver 0 (ps0, pid 1 on host h)"));
  EXPECT_THAT(c.Status(job).message(), HasSubstr("out of memory"));
}

// Pserver 0 has seen the longest waits, and pserver 1 waits now.
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
  ASSERT_TRUE(c.core_.operators().CancelJob("job-1", c.now_).ok());
  EXPECT_THAT(changed(),
              testing::UnorderedElementsAre(worker0, worker1, "phase job-1", "status job-1"));
}

TEST(SchedulerCoreTest, ShutdownStopsWorkersBeforePserversAndEnds) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  c.core_.operators().Shutdown(c.now_);
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
  c.core_.operators().Shutdown(c.now_);
  c.Advance(absl::Seconds(3));
  EXPECT_TRUE(c.Poll(c.pservers_[0])->stop());
  EXPECT_FALSE(c.core_.CanEnd(c.now_));
  c.Advance(absl::Seconds(2));
  EXPECT_TRUE(c.core_.CanEnd(c.now_));
}

}  // namespace
}  // namespace sluice

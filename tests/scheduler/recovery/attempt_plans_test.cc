// Next attempts that a user asks for, in a whole core with fake members.
#include "scheduler/recovery/attempt_plans.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A job of two workers in a cluster of two pservers and three workers. 100 examples, five global
// steps an epoch.
class AttemptPlansTest : public testing::Test {
 protected:
  AttemptPlansTest() : c_(2, 3) { c_.JoinAll(2, 3); }

  static JobConfig Config(int k_steps = -1) {
    JobConfig config = FakeCluster::Config(k_steps, 2, /*epochs=*/2);
    config.clear_recovery();
    config.set_output_dir("/out");
    return config;
  }
  static PhaseReport Index(uint32_t rank, uint32_t ranks) {
    PhaseReport report = Ended(1);
    IndexReport* const index = report.mutable_index();
    const uint32_t examples = 100 * (rank + 1) / ranks - 100 * rank / ranks;
    index->set_examples(examples);
    SeenFile* const file = index->add_train_seen();
    file->set_path("train.csv");
    file->set_bytes(2000);
    index->mutable_pieces()->add_file(0);
    index->mutable_pieces()->add_begin(2000 * rank / ranks);
    index->mutable_pieces()->add_end(2000 * (rank + 1) / ranks);
    index->mutable_pieces()->add_examples(examples);
    if (rank > 0) return report;
    DataFile* const listed = index->add_files();
    listed->set_path("train.csv");
    listed->set_bytes(2000);
    return report;
  }
  // Lets the ranks of the job's present attempt count their data, so that they train.
  void EndIndex() {
    const uint32_t ranks = c_.Status(job_).worker_num();
    for (uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_TRUE(c_.Phase(job_, rank, Index(rank, ranks)).ok());
    ASSERT_EQ(c_.Phase(job_, 0)->phase().kind(), Phase::TRAIN);
    c_.PollAll();
  }
  void Train(const JobConfig& config = Config()) {
    job_ = c_.Run(config);
    EndIndex();
    c_.core_.TakeActions();
  }
  // All parts of the sync checkpoint `number` arrive. Meanwhile the ranks have gone on to
  // `reached`.
  void MakeParts(uint64_t number, uint64_t step, uint64_t reached) {
    for (const uint64_t id : c_.pservers_) {
      HostedCut cut;
      cut.set_checkpoint(number);
      cut.set_state(HostedCut::WRITTEN);
      cut.set_step(step);
      c_.hosted_cuts_[id] = cut;
    }
    for (uint32_t rank = 0; rank < c_.Status(job_).worker_num(); ++rank) {
      WorkerCut cut;
      cut.set_job_id(job_);
      cut.set_rank(rank);
      cut.set_incarnation(c_.Incarnation(job_, rank));
      cut.set_checkpoint(number);
      cut.set_step(step);
      cut.mutable_state()->mutable_train()->set_examples(10 * step);
      c_.worker_cuts_[c_.workers_[c_.Status(job_).allocated(static_cast<int>(rank))]] = cut;
    }
    c_.steps_done_ = reached;
    c_.PollAll();
  }
  void Complete(uint64_t number, uint64_t step, uint64_t reached) {
    MakeParts(number, step, reached);
    c_.core_.CheckpointWritten(job_, number, absl::OkStatus(), "", c_.now_);
    c_.hosted_cuts_.clear();
    c_.worker_cuts_.clear();
    c_.steps_done_ = 0;
  }
  absl::Status Scale(uint32_t workers) {
    return c_.core_.operators().ScaleJob(job_, workers, c_.now_);
  }
  absl::StatusOr<DrainPserverReply> Drain(uint32_t rank, bool cancel = false) {
    return c_.Drain(rank, cancel);
  }
  // The pserver was told to end.
  absl::StatusOr<DrainPserverReply> DrainItself(uint32_t rank) {
    return c_.Drain(rank, /*cancel=*/false, c_.pservers_[rank]);
  }
  void FailCheckpoint(uint64_t number, uint64_t step) {
    MakeParts(number, step, step);
    c_.core_.CheckpointWritten(job_, number, absl::ResourceExhaustedError("disk full"), "",
                               c_.now_);
    c_.hosted_cuts_.clear();
    c_.worker_cuts_.clear();
    Tick();
    c_.PollAll();
  }
  // The checkpoint that rank 0 is asked for; 0: none.
  uint64_t Asked() { return c_.desired_[c_.workers_[0]].assignment().checkpoint().number(); }
  // The job's next attempt begins, but this pserver has no room for its tables.
  void FailToOpen(uint32_t pserver) {
    for (int i = 0; i < 2; ++i) {
      for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
    }
    const PollReply told = *c_.core_.members().Desired(c_.pservers_[pserver]);
    ASSERT_EQ(told.host_size(), 1) << c_.Status(job_).message();
    PollRequest report;
    report.set_member_id(c_.pservers_[pserver]);
    HostedJob* const hosted = report.add_hosted();
    hosted->set_job_id(job_);
    hosted->set_instance(told.host(0).instance());
    hosted->set_generation(told.host(0).route().generation());
    hosted->set_error("no memory for table embedding");
    ASSERT_TRUE(c_.core_.Poll(report, c_.now_).ok());
  }
  void Kill(Role role, uint32_t rank, uint32_t pid = 1) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(pid);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9 (Killed)");
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase((role == ROLE_PSERVER ? c_.pservers_ : c_.workers_)[rank]);
  }
  void Leave(Role role, uint32_t rank) {
    LeaveRequest leave;
    leave.set_member_id((role == ROLE_PSERVER ? c_.pservers_ : c_.workers_)[rank]);
    c_.core_.Leave(leave, c_.now_);
    c_.desired_.erase(leave.member_id());
  }
  void Replace(Role role, uint32_t rank, uint32_t pid = 2) {
    (role == ROLE_PSERVER ? c_.pservers_ : c_.workers_)[rank] = c_.Join(role, rank, pid);
  }
  void Tick() { c_.Advance(absl::Milliseconds(250)); }
  Recovery Counts() { return c_.Status(job_).recovery(); }
  std::string Warnings() {
    std::string all;
    const JobStatus status = c_.Status(job_);
    for (const std::string& warning : status.warnings()) all += warning + "\n";
    return all;
  }
  // The job that each worker is allocated to.
  std::vector<std::string> Allocated() {
    std::vector<std::string> jobs;
    const ClusterStatus cluster = c_.core_.operators().GetStatus(c_.now_);
    for (const MemberStatus& member : cluster.members()) {
      if (member.role() == ROLE_WORKER) jobs.push_back(member.job_id());
    }
    return jobs;
  }
  const JobSpec& Spec() { return c_.desired_[c_.pservers_[0]].host(0); }

  FakeCluster c_;
  std::string job_;
};

TEST_F(AttemptPlansTest, MoreWorkersBeginAtTheCheckpoint) {
  Train();
  const uint64_t instance = Spec().instance();
  ASSERT_TRUE(Scale(3).ok());
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_EQ(Spec().instance(), instance);
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().checkpoint().number(), 1);
  Complete(1, /*step=*/2, /*reached=*/4);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("from 2 to 3 workers"));
  c_.PollAll();
  const JobStatus status = c_.Status(job_);
  ASSERT_EQ(status.state(), JOB_RUNNING) << status.message();
  EXPECT_EQ(status.worker_num(), 3);
  EXPECT_THAT(status.allocated(), ElementsAre(0, 1, 2));
  EXPECT_NE(Spec().instance(), instance);
  EXPECT_EQ(Spec().worker_num(), 3);
  EXPECT_EQ(Spec().global_batch(), 20);
  EXPECT_EQ(Spec().restore().directory(), "/out/checkpoints/step-2");
  EXPECT_EQ(Counts().scalings(), 1);
  EXPECT_EQ(Counts().rollbacks(), 0);
  EXPECT_EQ(Counts().steps_rolled_back(), 2);
  EXPECT_THAT(Counts().last(),
              AllOf(HasSubstr("from 2 to 3 workers"), HasSubstr("/out/checkpoints/step-2")));
  // All three ranks continue at the same position, and the next checkpoint needs their parts.
  EndIndex();
  for (const uint32_t rank : {0, 1, 2}) {
    EXPECT_EQ(c_.Phase(job_, rank)->phase().global_steps(), 5);
    EXPECT_EQ(c_.Phase(job_, rank)->phase().skip_steps(), 2);
  }
  EXPECT_EQ(c_.core_.operators().CheckpointJob(job_, 0, c_.now_)->number(), 2);
  c_.core_.TakeActions();
  Complete(2, 4, 4);
  EXPECT_EQ(c_.Status(job_).checkpoint().step(), 4);
  const std::vector<OutputAction> actions = c_.core_.TakeActions();
  const auto made = std::find_if(actions.begin(), actions.end(), [](const OutputAction& action) {
    return action.kind == OutputAction::kCheckpoint;
  });
  ASSERT_NE(made, actions.end());
  EXPECT_EQ(made->manifest.checkpoint().workers_size(), 3);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
}

TEST_F(AttemptPlansTest, AWorkerThatIsNotNeededAnyMoreDoesNotShrinkTheJob) {
  JobConfig config = Config();
  config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
  Train(config);
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 1, 1);
  c_.PollAll();
  EndIndex();
  ASSERT_TRUE(Scale(2).ok());
  Complete(2, 3, 3);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  Kill(ROLE_WORKER, 0);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_EQ(Counts().shrinks(), 0);
  EXPECT_EQ(Counts().worker_losses(), 1);
}

TEST_F(AttemptPlansTest, FewerWorkersGiveTheOthersBack) {
  Train();
  ASSERT_TRUE(Scale(1).ok());
  Complete(1, 2, 2);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 1);
  EXPECT_THAT(Allocated(), ElementsAre(job_, "", ""));
  EXPECT_THAT(Counts().last(),
              AllOf(HasSubstr("from 2 to 1 worker"), HasSubstr("/out/checkpoints/step-2")));
  EndIndex();
  EXPECT_EQ(c_.Phase(job_, 0)->phase().global_steps(), 5);
}

TEST_F(AttemptPlansTest, AsyncJobsScaleToo) {
  Train(Config(/*k_steps=*/0));
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_.Task(job_, rank, 0, 0, 1).ok());
  ASSERT_TRUE(Scale(3).ok());
  Tick();
  for (const uint32_t rank : {0, 1}) {
    WorkerCut cut;
    cut.set_job_id(job_);
    cut.set_rank(rank);
    cut.set_incarnation(c_.Incarnation(job_, rank));
    cut.set_checkpoint(1);
    c_.worker_cuts_[c_.workers_[rank]] = cut;
  }
  c_.PollAll();
  const CutOrder order = c_.desired_[c_.pservers_[0]].cuts(0);
  ASSERT_EQ(order.now(), 1);
  for (const uint64_t id : c_.pservers_) {
    HostedCut cut;
    cut.set_checkpoint(1);
    cut.set_state(HostedCut::WRITTEN);
    cut.set_step(order.step());
    c_.hosted_cuts_[id] = cut;
  }
  c_.PollAll();
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.hosted_cuts_.clear();
  c_.worker_cuts_.clear();
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 3);
  EXPECT_EQ(Counts().scalings(), 1);
  EndIndex();
}

TEST_F(AttemptPlansTest, AJobIsScaledTwice) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 1, 1);
  c_.PollAll();
  EndIndex();
  ASSERT_TRUE(Scale(1).ok());
  Complete(2, 3, 3);
  c_.PollAll();
  EndIndex();
  EXPECT_EQ(c_.Status(job_).worker_num(), 1);
  EXPECT_EQ(Counts().scalings(), 2);
  for (const uint64_t number : {2, 3, 4, 5, 6})
    c_.Phase(job_, 0, Trained(number, 100)).status().IgnoreError();
  c_.PollAll();
  const OutputAction ended = c_.WriteOutputs().back();
  EXPECT_EQ(ended.result.status(), "done");
  EXPECT_EQ(ended.config.worker_num(), 1);
  EXPECT_EQ(ended.result.recovery().scalings(), 2);
}

TEST_F(AttemptPlansTest, TheNewestRequestCounts) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  EXPECT_TRUE(Scale(3).ok()) << "repeated";
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, job_));
  ASSERT_TRUE(Scale(1).ok());
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, ""));
  ASSERT_TRUE(Scale(2).ok()) << "withdrawn";
  ASSERT_TRUE(absl::IsAlreadyExists(Scale(2)));
  Complete(1, 2, 2);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(Counts().scalings(), 0);
}

TEST_F(AttemptPlansTest, WorkersThatAreLeavingAnEndedJobCountAsFree) {
  Train();
  JobConfig config = FakeCluster::Config(-1, 1);
  config.set_output_dir("/other");
  const std::string other = c_.Run(config);
  EXPECT_TRUE(absl::IsFailedPrecondition(Scale(3))) << "the third worker trains";
  ASSERT_TRUE(c_.core_.operators().CancelJob(other, c_.now_).ok());
  ASSERT_TRUE(Scale(3).ok()) << "it has not said yet that it has stopped";
  Complete(1, 2, 2);
  c_.PollAll();
  EXPECT_EQ(c_.Status(job_).worker_num(), 3u) << c_.Status(job_).message();
}

TEST_F(AttemptPlansTest, ImpossibleRequestsAreRefusedAndChangeNothing) {
  EXPECT_TRUE(absl::IsNotFound(c_.core_.operators().ScaleJob("job-7", 3, c_.now_)));
  JobConfig config = Config();
  config.mutable_data()->set_shuffle_lanes(2);
  Train(config);
  EXPECT_TRUE(absl::IsInvalidArgument(Scale(0)));
  EXPECT_THAT(std::string(Scale(2).message()), HasSubstr("2 workers already"));
  EXPECT_THAT(std::string(Scale(3).message()), HasSubstr("shuffle_lanes 2"));
  const std::string queued = *c_.Submit(FakeCluster::Config(-1, 2));
  EXPECT_THAT(std::string(c_.core_.operators().ScaleJob(queued, 1, c_.now_).message()),
              HasSubstr("queued"));
  Kill(ROLE_PSERVER, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Scale(1)));
  ASSERT_TRUE(c_.core_.operators().CancelJob(queued, c_.now_).ok());
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  EXPECT_THAT(std::string(Scale(1).message()), HasSubstr("has ended"));
  EXPECT_EQ(Counts().scalings(), 0);
}

TEST_F(AttemptPlansTest, ARequestThatLacksFreeWorkersNamesThem) {
  Train();
  const absl::Status refused = Scale(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("2 workers more"), HasSubstr(" 1 "), HasSubstr("at most 3")));
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, ""));
  EXPECT_FALSE(c_.desired_[c_.workers_[0]].assignment().has_checkpoint());
}

TEST_F(AttemptPlansTest, FilesOfRanksAndEvaluationsForbidScaling) {
  JobConfig config = Config();
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  job_ = c_.Run(config);
  EXPECT_THAT(std::string(Scale(1).message()), HasSubstr("PER_RANK_FILES"));
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  c_.PollAll();
  c_.WriteOutputs();
  config = Config();
  config.set_evaluate_only(true);
  job_ = c_.Run(config);
  EXPECT_THAT(std::string(Scale(1).message()), HasSubstr("only evaluates"));
}

TEST_F(AttemptPlansTest, WorkersOfARequestAreNotGivenToOtherJobs) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  JobConfig small = FakeCluster::Config(-1, 1);
  small.set_name("small");
  const std::string queued = *c_.Submit(small);
  c_.PollAll();
  EXPECT_EQ(c_.State(queued), JOB_QUEUED);
  MakeParts(1, 2, 2);
  c_.core_.CheckpointWritten(job_, 1, absl::ResourceExhaustedError("disk full"), "", c_.now_);
  Tick();
  c_.PollAll();
  EXPECT_THAT(Warnings(), AllOf(HasSubstr("from 2 to 3 workers"), HasSubstr("disk full")));
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_EQ(c_.State(queued), JOB_RUNNING) << c_.Status(queued).message();
}

TEST_F(AttemptPlansTest, ALostWorkerDropsTheRequestAndTakesTheReservedOne) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  HostedCut writing;
  writing.set_checkpoint(1);
  writing.set_state(HostedCut::WRITING);
  writing.set_step(2);
  c_.hosted_cuts_[c_.pservers_[0]] = writing;
  c_.PollAll();
  Kill(ROLE_WORKER, 1);
  c_.hosted_cuts_.clear();
  c_.PollAll();
  EXPECT_THAT(Warnings(), HasSubstr("worker 1"));
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_THAT(c_.Status(job_).allocated(), ElementsAre(0, 2));
  EXPECT_EQ(Counts().scalings(), 0);
  EXPECT_EQ(Counts().rollbacks(), 0);
}

TEST_F(AttemptPlansTest, ALostPserverDropsTheRequest) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Kill(ROLE_PSERVER, 1);
  EXPECT_THAT(Warnings(), HasSubstr("pserver 1"));
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_EQ(Counts().rollbacks(), 1);
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, ""));
}

TEST_F(AttemptPlansTest, AReservedWorkerThatIsLostDropsTheRequest) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Kill(ROLE_WORKER, 2);
  Complete(1, 2, 2);
  EXPECT_THAT(Warnings(), HasSubstr("2 workers of 3"));
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(Counts().worker_losses(), 0);
}

TEST_F(AttemptPlansTest, AWorkerThatIsLostWhileTheAttemptBeginsIsReplaced) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 2, 2);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  Kill(ROLE_WORKER, 0);
  c_.PollAll();
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("1 worker to register"));
  Replace(ROLE_WORKER, 0);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 3);
  EXPECT_EQ(Counts().worker_losses(), 1);
  EXPECT_THAT(Counts().last(), AllOf(HasSubstr("worker 0"), HasSubstr("from 2 to 3")));
}

TEST_F(AttemptPlansTest, ALossBeyondTheLimitFailsTheJobAlsoIfItCouldGoBack) {
  JobConfig config = Config();
  config.mutable_recovery()->set_max_losses(0);
  Train(config);
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 2, 2);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  Kill(ROLE_WORKER, 0);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("worker 0"));
}

// ------------------------------------------------------------------------------------------ drain

TEST_F(AttemptPlansTest, AJobLeavesAPserverThatIsDrained) {
  Train();
  EXPECT_THAT(Drain(1)->jobs(), ElementsAre(job_));
  EXPECT_TRUE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
  Complete(1, 2, 4);
  EXPECT_THAT(Drain(1)->jobs(), ElementsAre(job_)) << "it may be needed again";
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Drain(1)->jobs(), IsEmpty()) << "its tables are dropped";
  Leave(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
  EXPECT_EQ(Spec().worker_num(), 2);
  EXPECT_EQ(Spec().restore().directory(), "/out/checkpoints/step-2");
  EXPECT_EQ(Counts().scalings(), 1);
  EXPECT_EQ(Counts().rollbacks(), 0);
  EXPECT_EQ(Counts().pserver_losses(), 0);
  EXPECT_THAT(Counts().last(), AllOf(HasSubstr("pserver 1"), HasSubstr("/out/checkpoints/step-2")));
  // Checkpoints need only its part, and jobs that start later do not wait for the other one.
  EndIndex();
  EXPECT_EQ(c_.core_.operators().CheckpointJob(job_, 0, c_.now_)->number(), 2);
  Complete(2, 4, 4);
  EXPECT_EQ(c_.Status(job_).checkpoint().step(), 4);
  JobConfig small = FakeCluster::Config(-1, 1);
  small.set_name("small");
  const std::string later = c_.Run(small);
  EXPECT_EQ(c_.Status(later).route().pservers_size(), 1);
  // A pserver that takes the place of one that has left is a new one.
  Replace(ROLE_PSERVER, 1);
  EXPECT_FALSE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
}

TEST_F(AttemptPlansTest, TheLossOfADrainedPserverConcernsNobody) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  Complete(1, 2, 2);
  c_.PollAll();
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(Counts().pserver_losses(), 0);
  // Its starter starts it again: it is still draining.
  Replace(ROLE_PSERVER, 1);
  EXPECT_TRUE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
  ASSERT_TRUE(Drain(1, /*cancel=*/true).ok());
  EXPECT_FALSE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
}

TEST_F(AttemptPlansTest, ADrainingPserverThatIsLostTooEarlyIsNotAwaited) {
  for (const int k_steps : {-1, 0}) {
    Train(Config(k_steps));
    ASSERT_TRUE(Drain(1).ok());
    Kill(ROLE_PSERVER, 1);
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
    EXPECT_EQ(Counts().pserver_losses(), 1);
    EXPECT_EQ(Counts().rollbacks(), 1);
    EXPECT_EQ(Counts().scalings(), 0);
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.PollAll();
    c_.WriteOutputs();
    Replace(ROLE_PSERVER, 1, /*pid=*/1);
    ASSERT_TRUE(Drain(1, /*cancel=*/true).ok());
    c_.incarnations_.clear();
  }
}

TEST_F(AttemptPlansTest, ThereMustBeAnotherPserver) {
  Train();
  EXPECT_TRUE(absl::IsNotFound(Drain(2).status()));
  ASSERT_TRUE(Drain(1).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Drain(0).status()));
  EXPECT_TRUE(Drain(1).ok()) << "the call may be repeated";
}

TEST_F(AttemptPlansTest, ACancelledDrainChangesNothing) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  EXPECT_THAT(Drain(1, /*cancel=*/true)->jobs(), ElementsAre(job_));
  Complete(1, 2, 2);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(Counts().scalings(), 0);
  EXPECT_EQ(Spec().route().pservers_size(), 2);
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(AttemptPlansTest, ADrainWhoseCheckpointFailsIsTriedAgainByANewRequestOnly) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  FailCheckpoint(1, 2);
  EXPECT_THAT(Warnings(), HasSubstr("away from pserver 1"));
  const int warnings = c_.Status(job_).warnings_size();
  // This call still belongs to the request that has failed.
  EXPECT_THAT(Drain(1)->failure(), AllOf(HasSubstr(job_), HasSubstr("disk full")));
  EXPECT_EQ(Asked(), 0);
  // Nothing of the first one is being written any more, so that this failure has another cause.
  for (int i = 0; i < 11; ++i) {
    c_.Advance(absl::Seconds(1));
    c_.PollAll();
  }
  EXPECT_EQ(Drain(1)->failure(), "");
  c_.PollAll();
  EXPECT_EQ(Asked(), 2);
  FailCheckpoint(2, 3);
  EXPECT_EQ(c_.Status(job_).warnings_size(), warnings) << Warnings();
  EXPECT_THAT(Drain(1)->failure(), HasSubstr("disk full"));
  EXPECT_THAT(Drain(1)->jobs(), ElementsAre(job_));
  c_.PollAll();
  Complete(3, 4, 4);
  c_.PollAll();
  EXPECT_EQ(Counts().scalings(), 1);
  EXPECT_THAT(Drain(1)->jobs(), IsEmpty());
  EXPECT_EQ(Drain(1)->failure(), "");
}

TEST_F(AttemptPlansTest, APserverThatEndsDoesNotTryAgain) {
  Train();
  ASSERT_TRUE(DrainItself(1).ok());
  FailCheckpoint(1, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(DrainItself(1)->failure(), HasSubstr("disk full"));
    Tick();
    c_.PollAll();
    EXPECT_EQ(Asked(), 0);
  }
}

TEST_F(AttemptPlansTest, AFencedPserverDoesNotDrainItsSuccessor) {
  Train();
  const uint64_t old = c_.pservers_[1];
  Kill(ROLE_PSERVER, 1);
  EXPECT_TRUE(absl::IsUnavailable(c_.Drain(1, /*cancel=*/false, old).status()));
  Replace(ROLE_PSERVER, 1);
  EXPECT_TRUE(absl::IsAborted(c_.Drain(1, /*cancel=*/false, old).status()));
  EXPECT_FALSE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
  EXPECT_TRUE(DrainItself(1).ok());
  EXPECT_TRUE(c_.core_.operators().GetStatus(c_.now_).members(1).draining());
}

TEST_F(AttemptPlansTest, NobodyWaitsWhenAllPserversEnd) {
  Train(Config(/*k_steps=*/0));  // in sync the job would be withdrawn from the first one, too
  ASSERT_TRUE(DrainItself(0).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(DrainItself(1).status()));
  Leave(ROLE_PSERVER, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(DrainItself(0).status()));
}

TEST_F(AttemptPlansTest, ARecoveringJobAvoidsTheDrainedPserver) {
  Train();
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_THAT(Drain(1)->jobs(), IsEmpty());
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
  EXPECT_EQ(Counts().rollbacks(), 1);
}

TEST_F(AttemptPlansTest, ALostPserverThatIsDrainedIsNotAwaited) {
  Train(Config(/*k_steps=*/0));
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << "its shards wait for another process";
  ASSERT_TRUE(Drain(1).ok());
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
  EXPECT_EQ(Counts().rollbacks(), 1);
  EXPECT_EQ(Counts().pserver_losses(), 1);
}

TEST_F(AttemptPlansTest, AStartingJobLeavesTheDrainedPserverWhenItTrains) {
  c_.outputs_begin_ = false;
  job_ = *c_.Submit(Config());
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_STARTING);
  EXPECT_THAT(Drain(1)->jobs(), ElementsAre(job_));
  c_.outputs_begin_ = true;
  c_.PollAll();
  EndIndex();
  Tick();
  c_.PollAll();
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().checkpoint().number(), 1);
  Complete(1, 2, 2);
  c_.PollAll();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
}

TEST_F(AttemptPlansTest, OneAttemptScalesAndDrains) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 2, 2);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec().worker_num(), 3);
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
  EXPECT_EQ(Counts().scalings(), 1);
  EXPECT_THAT(Counts().last(), AllOf(HasSubstr("from 2 to 3 workers"), HasSubstr("pserver 1")));
}

// ------------------------------------------------------------------------------- what goes wrong

TEST_F(AttemptPlansTest, AJobWithoutRoomElsewhereGoesBackToTheDrainingPserver) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  Complete(1, 2, 4);
  FailToOpen(0);
  ASSERT_NE(c_.State(job_), JOB_FAILED) << c_.Status(job_).message();
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0", "ps1"));
  EXPECT_EQ(Spec().restore().directory(), "/out/checkpoints/step-2");
  EXPECT_THAT(Warnings(), AllOf(HasSubstr("embedding"), HasSubstr("pserver 1")));
  const auto reply = Drain(1);
  EXPECT_THAT(reply->jobs(), ElementsAre(job_));
  EXPECT_THAT(reply->failure(), HasSubstr("embedding"));
  EndIndex();
  Tick();
  c_.PollAll();
  EXPECT_EQ(Asked(), 0) << "until somebody asks again";
  // Another loss does not lead to the attempt that has failed.
  Kill(ROLE_PSERVER, 0);
  Replace(ROLE_PSERVER, 0);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0", "ps1"));
  // Asked again, it goes.
  EndIndex();
  ASSERT_EQ(Drain(1)->failure(), "");
  c_.PollAll();
  Complete(Asked(), 5, 5);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_THAT(Spec().route().pservers(), ElementsAre("ps0"));
}

TEST_F(AttemptPlansTest, AJobWithoutRoomForMoreWorkersKeepsItsOwn) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 2, 4);
  FailToOpen(0);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, ""));
  EXPECT_THAT(Warnings(), AllOf(HasSubstr("from 2 to 3"), HasSubstr("embedding")));
  EXPECT_THAT(Counts().last(), HasSubstr("step-2"));
  // An attempt that nobody asked for has nothing to go back to.
  Kill(ROLE_PSERVER, 1);
  Replace(ROLE_PSERVER, 1);
  FailToOpen(0);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
}

TEST_F(AttemptPlansTest, WhenGoingBackFailsTheJobFails) {
  Train();
  ASSERT_TRUE(Drain(1).ok());
  Complete(1, 2, 4);
  FailToOpen(0);
  FailToOpen(1);
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("embedding"));
}

TEST_F(AttemptPlansTest, LateLossOfAReservedWorkerReturnsTheJobToItsOldSize) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  Complete(1, 2, 2);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  Kill(ROLE_WORKER, 2);
  c_.workers_.pop_back();
  for (int second = 0; second < 125; ++second) {
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
  }
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.Status(job_).worker_num(), 2);
  EXPECT_THAT(Warnings(), HasSubstr("from 2 to 3 workers"));
  EXPECT_EQ(Counts().scalings(), 0);
}

TEST_F(AttemptPlansTest, ARequestIsMetAtTheEndOfTheEpoch) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, job_));
  // No commit has named the checkpoint.
  for (const uint32_t rank : {0, 1}) EXPECT_FALSE(c_.Phase(job_, rank, Trained(2, 50))->ready());
  Complete(1, 5, 5);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING) << "the next attempt begins there";
  EXPECT_EQ(c_.Status(job_).worker_num(), 3);
}

TEST_F(AttemptPlansTest, ARequestAfterTheLastEpochIsRefused) {
  Train();
  for (const uint64_t phase : {2, 3, 4}) {  // two epochs, and an evaluation between them
    for (const uint32_t rank : {0, 1})
      c_.Phase(job_, rank, Trained(phase, 50)).status().IgnoreError();
  }
  Tick();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << "it makes the checkpoint of its end";
  EXPECT_TRUE(absl::IsFailedPrecondition(Scale(3)));
  EXPECT_THAT(Allocated(), ElementsAre(job_, job_, ""));
}

TEST_F(AttemptPlansTest, TheNumberOfWorkersIsKeptBeforeTheAttemptBegins) {
  Train();
  ASSERT_TRUE(Scale(3).ok());
  c_.core_.TakeRecords();
  Complete(1, 2, 2);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  JobRecord record;
  for (const MetaStore::Write& write : c_.core_.TakeRecords()) {
    if (write.key != "job/" + job_) continue;
    ASSERT_TRUE(record.ParseFromString(*write.value));
  }
  EXPECT_EQ(record.worker_num(), 3);
}

}  // namespace
}  // namespace sluice

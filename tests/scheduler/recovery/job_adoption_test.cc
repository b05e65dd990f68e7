// Attempts that outlive their scheduler: the next one adopts them with the members that serve them.
#include "scheduler/recovery/job_adoption.h"

#include <gmock/gmock.h>

#include <set>

#include "common/saved_model/checkpoint.h"
#include "tests/scheduler/restart_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class JobAdoptionTest : public RestartTest {
 protected:
  JobAdoptionTest() { adopts_ = true; }

  static JobConfig Config(int k_steps, uint32_t epochs = 2) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.mutable_recovery()->set_max_losses(100);
    config.mutable_data()->clear_eval_files();
    config.set_output_dir("/out");
    return config;
  }
  // Runs a job of two workers until they train its first epoch.
  std::string Train(const JobConfig& config) {
    c_->JoinAll(2, 2);
    const std::string job = Run(config);
    for (const uint32_t rank : {0, 1}) {
      PhaseReport report = Indexed(50, rank);
      if (config.strategy().a_sync() && rank == 0) {
        DataFile* const file = report.mutable_index()->add_files();
        file->set_path("train.csv");
        file->set_bytes(1000);
      }
      EXPECT_TRUE(c_->Phase(job, rank, report).ok());
    }
    EXPECT_EQ(Kind(job, 0), Phase::TRAIN);
    return job;
  }
  Phase::Kind Kind(const std::string& job, uint32_t rank) {
    const auto reply = c_->Phase(job, rank);
    return reply.ok() ? reply->phase().kind() : Phase::KIND_UNSPECIFIED;
  }
  // The jobs that the member holds under the present scheduler.
  std::vector<HeldJob> Holds(uint64_t id) {
    std::vector<HeldJob> holds;
    const PollReply& desired = c_->desired_[id];
    const auto add = [&](const JobSpec& spec) {
      HeldJob& held = holds.emplace_back();
      held.set_job_id(spec.job_id());
      held.set_instance(spec.instance());
      held.set_generation(spec.route().generation());
      return &held;
    };
    for (const JobSpec& spec : desired.host()) add(spec)->set_checkpoint(checkpoint_);
    if (desired.has_assignment()) {
      HeldJob* const held = add(desired.assignment().job());
      held->set_rank(desired.assignment().rank());
      held->set_incarnation(desired.assignment().incarnation());
    }
    return holds;
  }
  // Restarts the scheduler; the calls of the ranks continue with their incarnations.
  void Restart() {
    for (const uint64_t id : c_->pservers_) pserver_holds_.push_back({c_->desired_[id], Holds(id)});
    for (const uint64_t id : c_->workers_) worker_holds_.push_back({c_->desired_[id], Holds(id)});
    for (const auto& [key, incarnation] : c_->incarnations_) incarnations_[key] = incarnation;
    const CoreOfKnownCallers::Passes passes = c_->core_.passes();
    RestartTest::Restart();
    c_->incarnations_ = incarnations_;
    c_->core_.passes() = passes;
  }
  // The member registers again with what it holds. Returns whether it may keep that.
  bool Return(Role role, uint32_t rank, bool with_holds = true) {
    auto& [desired, holds] = (role == ROLE_WORKER ? worker_holds_ : pserver_holds_)[rank];
    RegisterRequest request = FakeCluster::Registration(role, rank);
    if (with_holds) request.mutable_holds()->Assign(holds.begin(), holds.end());
    const auto reply = c_->core_.Register(request, c_->now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    const uint64_t id = reply->member_id();
    (role == ROLE_WORKER ? c_->workers_ : c_->pservers_).push_back(id);
    if (reply->adopted()) {
      c_->desired_[id] = desired;
      c_->desired_[id].set_version(0);
    }
    return reply->adopted();
  }
  void ReturnAll() {
    for (const uint32_t rank : {0, 1}) {
      EXPECT_TRUE(Return(ROLE_PSERVER, rank));
      EXPECT_TRUE(Return(ROLE_WORKER, rank));
    }
    c_->PollAll();
  }
  bool HasRunRecords() {
    Keep();
    for (const auto& [key, value] : records_) {
      if (key.rfind("job/", 0) != 0 && key.rfind("config/", 0) != 0 && key != "next") return true;
    }
    return false;
  }

  void Clear() {
    pserver_holds_.clear();
    worker_holds_.clear();
    records_.clear();
    Start();
  }
  // The process of the member ends.
  void Kill(Role role, uint32_t rank, uint32_t pid = 1) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(pid);
    ended.set_process_space("space");
    c_->core_.members().MemberEnded(ended, c_->now_);
    c_->desired_.erase((role == ROLE_PSERVER ? c_->pservers_ : c_->workers_)[rank]);
  }
  // A checkpoint of step 3 that an attempt has made, as it is read from its folder.
  static std::unique_ptr<const ResumePoint> Checkpoint(uint64_t instance) {
    auto point = std::make_unique<ResumePoint>();
    point->dir = "/out/checkpoints/step-3";
    point->manifest.set_global_step(3);
    point->manifest.add_files()->set_name(
        absl::StrCat("job.", CheckpointSaveId(instance, 4), ".textproto"));
    return point;
  }

  uint64_t checkpoint_ = 0;  // that pservers know
  std::vector<std::pair<PollReply, std::vector<HeldJob>>> pserver_holds_, worker_holds_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> incarnations_;
};

// Every epoch is a record of its own, so that a job of many epochs writes no more for each of them.
TEST_F(JobAdoptionTest, EpochsAreKeptOnceAndComeBackAll) {
  constexpr uint32_t kEpochs = 60;
  const std::string job = Train(Config(-1, kEpochs));
  Keep();
  size_t early = 0, late = 0;
  for (uint32_t epoch = 0; epoch + 1 < kEpochs; ++epoch) {
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Trained(2 + epoch, 50)).ok());
    size_t bytes = 0;
    for (const MetaStore::Write& write : c_->core_.TakeRecords()) {
      if (write.value.has_value()) {
        bytes += write.value->size();
        records_[write.key] = *write.value;
      } else {
        records_.erase(write.key);
      }
    }
    if (epoch == 16) early = bytes;
    if (epoch == 48) late = bytes;
  }
  EXPECT_LE(late, early + 64);
  RunRecord run;
  ASSERT_TRUE(run.ParseFromString(records_.at("run/" + job)));
  EXPECT_EQ(run.state().results().result().epochs_log_size(), 0);
  EXPECT_EQ(run.spec().tables_size(), 0);
  EXPECT_EQ(run.spec().config().name(), "");
  Restart();
  ReturnAll();
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Trained(1 + kEpochs, 50)).ok());
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Ended(2 + kEpochs)).ok());
  c_->PollAll();
  c_->Advance(absl::Seconds(3));
  JobResult result;
  for (const OutputAction& action : c_->WriteOutputs()) {
    if (action.kind == OutputAction::kEnded) result = action.result;
  }
  ASSERT_EQ(result.epochs_log_size(), static_cast<int>(kEpochs));
  for (uint32_t i = 0; i < kEpochs; ++i)
    EXPECT_EQ(result.epochs_log(static_cast<int>(i)).epoch(), i + 1);
  EXPECT_FALSE(HasRunRecords());
}

// An earlier version had the configuration in the records of the job and of the run, and the epochs
// in the latter.
TEST_F(JobAdoptionTest, RecordsOfAnEarlierVersionAreAdopted) {
  const std::string job = Train(Config(-1, 4));
  for (const uint32_t phase : {2, 3}) {
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Trained(phase, 50)).ok());
  }
  Keep();
  ConfigRecord config;
  ASSERT_TRUE(config.ParseFromString(records_.at("config/" + job)));
  EpochsRecord epochs;
  ASSERT_TRUE(epochs.ParseFromString(records_.at("epoch/" + job + "/0000000000")));
  ASSERT_EQ(epochs.epochs_size(), 2);
  JobRecord record = Record(job);
  *record.mutable_config() = config.config();
  *record.mutable_tables() = config.tables();
  RunRecord run;
  ASSERT_TRUE(run.ParseFromString(records_.at("run/" + job)));
  JobConfig of_spec = config.config();
  *of_spec.mutable_checkpoint() = run.spec().config().checkpoint();
  *of_spec.mutable_recovery() = run.spec().config().recovery();
  *run.mutable_spec()->mutable_config() = of_spec;
  *run.mutable_spec()->mutable_tables() = config.tables();
  *run.mutable_state()->mutable_results()->mutable_result()->mutable_epochs_log() = epochs.epochs();
  records_["job/" + job] = record.SerializeAsString();
  records_["run/" + job] = run.SerializeAsString();
  records_.erase("config/" + job);
  records_.erase("epoch/" + job + "/0000000000");
  Restart();
  ReturnAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).epochs_log_size(), 2);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
  EXPECT_EQ(records_.count("config/" + job), 1u);
  EXPECT_EQ(records_.count("epoch/" + job + "/0000000000"), 1u);
}

TEST_F(JobAdoptionTest, ASyncEpochContinuesWithTheSameMembers) {
  const std::string job = Train(Config(-1));
  const uint64_t instance = c_->desired_[c_->pservers_[0]].host(0).instance();
  const uint64_t generation = c_->desired_[c_->pservers_[0]].host(0).route().generation();
  EXPECT_TRUE(c_->Phase(job, 1, Trained(2, 50)).ok());
  Restart();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_THAT(c_->Status(job).message(), HasSubstr("pserver 1"));
  // The workers' calls are answered before the members are back.
  EXPECT_EQ(c_->Phase(job, 0)->phase().global_steps(), 5);
  EXPECT_FALSE(c_->Phase(job, 1, Trained(2, 50))->ready());
  ReturnAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).message(), "");
  const JobSpec& spec = c_->desired_[c_->pservers_[0]].host(0);
  EXPECT_EQ(spec.instance(), instance);
  EXPECT_EQ(spec.route().generation(), generation);
  for (const uint32_t rank : {0, 1}) {
    const WorkerAssignment& assignment = c_->desired_[c_->workers_[rank]].assignment();
    EXPECT_EQ(assignment.incarnation(), incarnations_.at({job, rank}));
  }
  // Reports to the earlier scheduler count once.
  EXPECT_TRUE(c_->Phase(job, 0, Trained(2, 50)).ok());
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(Kind(job, rank), Phase::TRAIN);
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Trained(3, 50)).ok());
  EXPECT_TRUE(c_->Phase(job, 0, Ended(4)).ok());
  EXPECT_TRUE(c_->Phase(job, 1, Ended(4)).ok());
  c_->PollAll();
  const JobResult result = c_->WriteOutputs().back().result;
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.examples(), 200);
  EXPECT_EQ(result.global_step(), 10);
  EXPECT_EQ(result.recovery().scheduler_restarts(), 1);
  EXPECT_EQ(result.recovery().rollbacks(), 0);
  EXPECT_FALSE(HasRunRecords());
}

// Otherwise the pservers would refuse the workers' next streams.
TEST_F(JobAdoptionTest, PassesOfAnEarlierSchedulerStayValid) {
  Train(Config(-1));
  const auto key = [&] { return c_->desired_[c_->pservers_[0]].host(0).pass_key(); };
  const auto pass = [&] { return c_->desired_[c_->workers_[1]].assignment().pass(); };
  const std::string key_before = key(), pass_before = pass();
  EXPECT_NE(key_before, "");
  Restart();
  ReturnAll();
  EXPECT_EQ(key(), key_before);
  EXPECT_EQ(pass(), pass_before);
}

TEST_F(JobAdoptionTest, WorkThatIsHeldWithoutItsPassIsIgnored) {
  Train(Config(-1));
  Restart();
  for (const Role role : {ROLE_PSERVER, ROLE_WORKER}) {
    auto& [desired, holds] = (role == ROLE_WORKER ? worker_holds_ : pserver_holds_)[0];
    RegisterRequest request = FakeCluster::Registration(role, 0, /*pid=*/9);
    request.mutable_holds()->Assign(holds.begin(), holds.end());
    const JobPasses passes(JobPassKey(std::string("key1"), holds[0].instance()));
    const std::string of_other =
        role == ROLE_PSERVER ? passes.OfTables(1) : passes.OfWorker(1, holds[0].incarnation());
    for (const std::string& pass : {std::string("guess"), of_other}) {
      request.mutable_holds(0)->set_pass(pass);
      request.set_life(request.life() + 1);
      request.set_ended_pid(9);
      RegisterNotes notes;
      const auto reply = c_->core_.Register(request, c_->now_, /*believed=*/true, &notes);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_FALSE(reply->adopted());
      EXPECT_EQ(notes.refused_holds, std::vector<std::string>{holds[0].job_id()});
    }
  }
}

TEST_F(JobAdoptionTest, AJobCanBeAdoptedInEachPhaseAndAgain) {
  JobConfig config = Config(-1);
  config.mutable_data()->add_eval_files("e");
  c_->JoinAll(2, 2);
  const std::string job = Run(config);
  const auto again = [&] {
    pserver_holds_.clear();
    worker_holds_.clear();
    Restart();
    ReturnAll();
  };
  uint64_t number = 0;
  for (const Phase::Kind kind :
       {Phase::INDEX, Phase::TRAIN, Phase::EVAL, Phase::TRAIN, Phase::EVAL, Phase::SAVE}) {
    again();
    ++number;
    for (const uint32_t rank : {0, 1}) {
      EXPECT_EQ(Kind(job, rank), kind);
      PhaseReport report = Ended(number);
      if (kind == Phase::INDEX) report = Indexed(50, rank);
      if (kind == Phase::TRAIN) report = Trained(number, 50);
      EXPECT_TRUE(c_->Phase(job, rank, report).ok());
    }
  }
  Restart();  // the job is over
  const JobResult result = c_->WriteOutputs().back().result;
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.epochs_log_size(), 2);
  EXPECT_EQ(result.examples(), 200);
  EXPECT_EQ(result.recovery().scheduler_restarts(), 6);
  EXPECT_EQ(result.recovery().rollbacks(), 0);
}

// Newer checkpoints have replaced the one at which the attempt has begun.
TEST_F(JobAdoptionTest, AnAttemptNeedsNoFolderOfTheCheckpointAtWhichItBegan) {
  auto point = std::make_unique<ResumePoint>();
  point->dir = "/out/checkpoints/step-7";
  point->initial_checkpoint = "/before";
  CheckpointState* const state = point->manifest.mutable_checkpoint();
  state->set_mode("sync");
  state->set_global_step(7);
  state->set_worker_num(2);
  state->set_global_batch(20);
  state->set_epoch(1);
  state->set_steps_done(2);
  state->set_steps_per_epoch(5);
  *state->mutable_train_files() = Indexed(50).index().train_seen();
  state->mutable_result()->set_examples(100);
  state->mutable_result()->set_global_step(5);
  for (int rank = 0; rank < 2; ++rank) state->add_workers()->mutable_train()->set_examples(20);
  c_->JoinAll(2, 2);
  const std::string job = Run(Config(-1), std::move(point));
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Indexed(50, rank)).ok());
  for (int i = 0; i < 2; ++i) {  // the record serves each later scheduler
    pserver_holds_.clear();
    worker_holds_.clear();
    Restart();
    ReturnAll();
    ASSERT_EQ(Kind(job, 0), Phase::TRAIN);
    EXPECT_EQ(c_->Phase(job, 0)->phase().skip_steps(), 2);
    EXPECT_EQ(c_->Phase(job, 0)->phase().resume().train().examples(), 20);
  }
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Trained(2, 50)).ok());
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Ended(3)).ok());
  c_->PollAll();
  const JobResult result = c_->WriteOutputs().back().result;
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.examples(), 200);
  EXPECT_EQ(result.resumed_from(), "/out/checkpoints/step-7");
  EXPECT_FALSE(HasRunRecords());
}

TEST_F(JobAdoptionTest, TasksAreLeasedAndCountedOnce) {
  for (const int k_steps : {0, 10}) {
    SCOPED_TRACE(k_steps);
    pserver_holds_.clear();
    worker_holds_.clear();
    records_.clear();
    Start();
    const std::string job = Train(Config(k_steps, 1));
    std::multiset<uint64_t> leased;
    std::vector<uint64_t> last(2), number(2);
    const auto ask = [&](uint32_t rank) {
      const auto reply = c_->Task(job, rank, 0, last[rank], ++number[rank], last[rank] ? 5 : 0);
      EXPECT_TRUE(reply.ok()) << reply.status();
      last[rank] = reply->task().id();
      if (last[rank] != 0) leased.insert(last[rank]);
      return reply->kind() == NextTaskReply::TASK;
    };
    for (int i = 0; i < 2; ++i) ask(0);
    ask(1);
    Restart();
    ask(0);  // before the members are back
    ReturnAll();
    // An answer that was lost is given again.
    const auto repeated = c_->Task(job, 0, 0, 0, number[0]);
    EXPECT_EQ(repeated->task().id(), last[0]);
    for (const uint32_t rank : {1, 0}) {
      while (ask(rank)) continue;
    }
    EXPECT_EQ(leased.size(), 10);
    EXPECT_EQ(std::set<uint64_t>(leased.begin(), leased.end()).size(), 10);
    for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Trained(2, 25)).ok());
    c_->PollAll();
    for (const uint32_t rank : {0, 1}) EXPECT_EQ(Kind(job, rank), Phase::SAVE);
    EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
    EXPECT_EQ(c_->Status(job).recovery().updates_lost(), 0);
  }
}

TEST_F(JobAdoptionTest, AnAnswerThatWasNotRecordedRollsTheJobBack) {
  const std::string job = Train(Config(0));
  EXPECT_TRUE(c_->Task(job, 0, 0, 0, 1).ok());
  Keep();
  // The store could not be written when these were answered.
  EXPECT_TRUE(c_->Task(job, 0, 0, 0, 2).ok());
  EXPECT_TRUE(c_->Task(job, 0, 0, 0, 3).ok());
  c_->core_.TakeRecords();
  Restart();
  ReturnAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_TRUE(absl::IsAborted(c_->Task(job, 0, 0, 0, 4).status()));
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
  c_->PollAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1);
}

TEST_F(JobAdoptionTest, MemberThatReturnsWithoutItsTablesOrRankRollsTheJobBack) {
  for (const Role role : {ROLE_PSERVER, ROLE_WORKER}) {
    pserver_holds_.clear();
    worker_holds_.clear();
    records_.clear();
    Start();
    const std::string job = Train(Config(-1));
    Restart();
    EXPECT_TRUE(Return(ROLE_PSERVER, 0));
    EXPECT_TRUE(Return(ROLE_WORKER, 0));
    EXPECT_FALSE(Return(role, 1, /*with_holds=*/false));
    EXPECT_EQ(c_->State(job), JOB_RECOVERING);
    // The attempt is over for the other one, too.
    EXPECT_FALSE(Return(role == ROLE_WORKER ? ROLE_PSERVER : ROLE_WORKER, 1));
    c_->PollAll();
    EXPECT_EQ(c_->State(job), JOB_RUNNING);
    EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1);
    EXPECT_EQ(c_->Status(job).recovery().scheduler_restarts(), 1);
  }
}

TEST_F(JobAdoptionTest, AMemberThatDoesNotReturnWithinALeaseRollsTheJobBack) {
  const std::string job = Train(Config(-1));
  Restart();
  EXPECT_TRUE(Return(ROLE_PSERVER, 0));
  EXPECT_TRUE(Return(ROLE_WORKER, 0));
  EXPECT_TRUE(Return(ROLE_WORKER, 1));
  for (int i = 0; i < 11; ++i) {
    c_->PollAll();
    EXPECT_EQ(c_->State(job), i < 10 ? JOB_RUNNING : JOB_RECOVERING) << i;
    c_->Advance(absl::Seconds(1));
  }
  EXPECT_THAT(c_->Status(job).message(), HasSubstr("pserver 1"));
  const std::vector<JobLine> lines = c_->core_.TakeLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0].text, HasSubstr("pserver 1"));
  EXPECT_FALSE(Return(ROLE_PSERVER, 1));
  c_->PollAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1);
}

TEST_F(JobAdoptionTest, AnotherAttemptIsNotAdopted) {
  const std::string job = Train(Config(-1));
  Restart();
  for (auto& [desired, holds] : pserver_holds_) holds[0].set_generation(holds[0].generation() + 1);
  EXPECT_FALSE(Return(ROLE_PSERVER, 0));
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
}

TEST_F(JobAdoptionTest, ARecordWithAFollowerOutOfRangeIsNotAdopted) {
  const std::string job = Train(Config(-1));
  Keep();
  std::string& stored = records_.at("run/" + job);
  RunRecord record;
  ASSERT_TRUE(record.ParseFromString(stored));
  record.mutable_spec()->clear_follower();
  for (const uint32_t follower : {6, 0}) record.mutable_spec()->add_follower(follower);
  stored = record.SerializeAsString();
  Restart();
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
}

TEST_F(JobAdoptionTest, PserversInTheRecordOfAWaitingJobAreIgnored) {
  const std::string job = Submit(Config(-1));
  JobRecord record = Record(job);
  record.add_pservers(5);
  records_["job/" + job] = record.SerializeAsString();
  Restart();
  EXPECT_EQ(c_->State(job), JOB_QUEUED);
  c_->JoinAll(2, 2);
  c_->PollAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
}

TEST_F(JobAdoptionTest, AJobWithAVacantRankIsNotAdopted) {
  const std::string job = Train(Config(-1));
  Kill(ROLE_WORKER, 1);
  Restart();
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
  EXPECT_EQ(c_->Status(job).recovery().worker_losses(), 1);
}

TEST_F(JobAdoptionTest, AJobThatIsCancelledMeanwhileEnds) {
  const std::string job = Train(Config(-1));
  Restart();
  EXPECT_TRUE(Return(ROLE_WORKER, 0));
  ASSERT_TRUE(c_->core_.operators().CancelJob(job, c_->now_).ok());
  EXPECT_FALSE(Return(ROLE_PSERVER, 0));
  EXPECT_FALSE(Return(ROLE_WORKER, 1));
  EXPECT_TRUE(c_->Phase(job, 1)->ready());
  EXPECT_EQ(c_->Phase(job, 1)->phase().kind(), Phase::FINISH);
  c_->PollAll();
  c_->WriteOutputs();
  EXPECT_EQ(c_->State(job), JOB_CANCELLED);
  EXPECT_FALSE(HasRunRecords());
}

TEST_F(JobAdoptionTest, WithoutACheckpointToGoBackToAFailedAdoptionEndsTheJob) {
  const std::string job = Train(Config(-1));
  points_[job] = absl::DataLossError("step-4/wide.0.shard is damaged");
  Restart();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_TRUE(Return(ROLE_PSERVER, 0));
  EXPECT_FALSE(Return(ROLE_PSERVER, 1, /*with_holds=*/false));
  EXPECT_THAT(c_->Status(job).message(), HasSubstr("wide.0.shard"));
  c_->WriteOutputs();
  EXPECT_EQ(c_->State(job), JOB_FAILED);
}

TEST_F(JobAdoptionTest, CheckpointsContinueAfterThoseOfTheEarlierScheduler) {
  const std::string job = Train(Config(-1));
  Restart();
  checkpoint_ = 7;
  EXPECT_TRUE(absl::IsUnavailable(c_->core_.operators().CheckpointJob(job, 0, c_->now_).status()));
  for (auto& [desired, holds] : pserver_holds_) holds[0].set_checkpoint(7);
  ReturnAll();
  ASSERT_EQ(c_->desired_[c_->pservers_[0]].cuts_size(), 1);
  EXPECT_EQ(c_->desired_[c_->pservers_[0]].cuts(0).over(), 7);
  EXPECT_EQ(c_->core_.operators().CheckpointJob(job, 0, c_->now_)->number(), 8);
}

TEST_F(JobAdoptionTest, CountsOfCheckpointsAndTheirAgeContinue) {
  JobConfig config = Config(-1);
  config.mutable_checkpoint()->set_every_s(600);
  const std::string job = Train(config);
  for (int i = 0; i < 30; ++i) {
    c_->PollAll();
    c_->Advance(absl::Seconds(1));
  }
  HostedCut& cut = c_->hosted_cuts_[c_->pservers_[0]];
  cut.set_checkpoint(1);
  cut.set_step(2);
  cut.set_state(HostedCut::FAILED);
  cut.set_error("disk full");
  c_->PollAll();
  ASSERT_EQ(c_->Status(job).checkpoint().failed(), 1u);
  Restart();
  ReturnAll();
  const CheckpointStatus status = c_->Status(job).checkpoint();
  EXPECT_EQ(status.failed(), 1u);
  EXPECT_THAT(status.last_error(), HasSubstr("disk full"));
  EXPECT_GE(status.age_s(), 30);
}

TEST_F(JobAdoptionTest, ALossBeforeTheRestartTellsWhatTheRollbackRepeats) {
  const std::string job = Train(Config(-1));
  c_->steps_done_ = 4;
  c_->PollAll();
  Kill(ROLE_WORKER, 1);
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RECOVERING);
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1u);
  EXPECT_EQ(c_->Status(job).recovery().steps_rolled_back(), 4u);
  Keep();
  EXPECT_EQ(Record(job).steps_reached(), 0u) << "by the next attempt";
}

TEST_F(JobAdoptionTest, ARankThatWasReplacedBeforeThePhaseContinues) {
  const std::string job = Train(Config(-1));
  // Rank 1 ends the phase and dies. Another worker takes it over, and the next phase begins before
  // that one has told what data it sees.
  EXPECT_TRUE(c_->Phase(job, 1, Trained(2, 50)).ok());
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  c_->desired_.erase(c_->workers_[1]);
  c_->workers_[1] = c_->Join(ROLE_WORKER, 1, /*pid=*/2);
  c_->PollAll();
  ASSERT_TRUE(c_->desired_[c_->workers_[1]].assignment().rejoins());
  EXPECT_TRUE(c_->Phase(job, 0, Trained(2, 50)).ok());
  PhaseReport seen = Indexed(50, 1);
  seen.set_number(0);
  EXPECT_EQ(c_->Phase(job, 1, seen)->phase().number(), 3);
  Restart();
  ReturnAll();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  // It does not tell that again.
  EXPECT_TRUE(c_->Phase(job, 0, Trained(3, 50)).ok());
  EXPECT_TRUE(c_->Phase(job, 1, Trained(3, 50))->ready());
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
}

// Rank 1 is replaced while it trains; the scheduler dies in the same phase.
class ReplacedInThePhase : public JobAdoptionTest {
 protected:
  // Sets the positions of rank 1 that the pservers report when it dies.
  void Hold(const RankPosition& least, const RankPosition& most) {
    c_->held_[c_->pservers_[0]] = {RankPosition(), most};
    c_->held_[c_->pservers_[1]] = {RankPosition(), least};
  }
  void Replace(const std::string& job) {
    Kill(ROLE_WORKER, 1);
    Keep();
    EXPECT_EQ(records_.count("run/" + job), 0) << "nobody can be adopted in its place";
    c_->workers_[1] = c_->Join(ROLE_WORKER, 1, /*pid=*/2);
    c_->PollAll();
    EXPECT_TRUE(c_->desired_[c_->workers_[1]].assignment().rejoins());
  }
  // The new life tells which files it sees, and gets its phase.
  Phase Rejoin(const std::string& job) {
    PhaseReport seen = Indexed(50, 1);
    seen.set_number(0);
    const auto reply = c_->Phase(job, 1, seen);
    EXPECT_TRUE(reply.ok() && reply->ready()) << reply.status();
    return reply.ok() ? reply->phase() : Phase();
  }
  // Rank 1 dies with tasks 1, 2 and 3 of ten, the second one half done, after rank 0 got none.
  std::string ReplaceWithTasks(int k_steps) {
    JobConfig config = Config(k_steps, 1);
    config.mutable_data()->set_shuffle(false);
    const std::string job = Train(config);
    for (const uint64_t number : {1, 2, 3})
      EXPECT_EQ(c_->Task(job, 1, 0, 0, number)->task().id(), number);
    RankPosition least;
    least.set_incarnation(c_->Incarnation(job, 1));
    least.set_sequence(6);
    least.set_task_id(2);
    least.set_task_end(4);
    least.mutable_totals()->set_examples(14);
    least.mutable_totals()->set_steps(6);
    RankPosition most = least;
    most.set_sequence(8);
    most.mutable_totals()->set_examples(18);
    Hold(least, most);
    Replace(job);
    return job;
  }
};

TEST_F(ReplacedInThePhase, TasksContinueWhereTheLostLifeWas) {
  for (const int k_steps : {0, 10}) {
    SCOPED_TRACE(k_steps);
    Clear();
    const std::string job = ReplaceWithTasks(k_steps);
    EXPECT_EQ(Rejoin(job).resume().train().examples(), 14u);
    const NextTaskReply rest = *c_->Task(job, 1, 0, 0, 1);
    EXPECT_EQ(rest.task().id(), 2u);
    EXPECT_EQ(rest.task().first_offset(), 4u);
    Restart();
    ASSERT_EQ(c_->State(job), JOB_RUNNING);
    ReturnAll();
    EXPECT_EQ(c_->Phase(job, 1)->phase().resume().train().examples(), 14u);
    std::vector<uint64_t> leased;
    for (uint64_t last = 2, number = 2;; ++number) {
      const auto reply = c_->Task(job, 1, 0, last, number, 5);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (reply->kind() != NextTaskReply::TASK) break;
      EXPECT_EQ(reply->task().first_offset(), 0u);
      leased.push_back(last = reply->task().id());
    }
    EXPECT_THAT(leased, testing::ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
    EXPECT_EQ(c_->Task(job, 0, 0, 0, 1)->kind(), NextTaskReply::EPOCH_DONE);
    for (const uint32_t rank : {0, 1})
      EXPECT_TRUE(c_->Phase(job, rank, Trained(2, rank * 100)).ok());
    for (const uint32_t rank : {0, 1}) EXPECT_EQ(Kind(job, rank), Phase::SAVE);
    EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
    EXPECT_EQ(c_->Status(job).recovery().examples_replayed(), 4u);
  }
}

TEST_F(ReplacedInThePhase, ASyncRankContinuesAfterItsLastCommit) {
  const std::string job = Train(Config(-1));
  RankPosition committed;
  committed.set_incarnation(c_->Incarnation(job, 1));
  committed.set_committed(4);
  committed.mutable_totals()->set_examples(40);
  Hold(committed, committed);
  Replace(job);
  const Phase phase = Rejoin(job);
  EXPECT_EQ(phase.skip_steps(), 4u);
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  EXPECT_EQ(c_->Phase(job, 1)->phase().DebugString(), phase.DebugString());
  EXPECT_EQ(c_->Phase(job, 0)->phase().skip_steps(), 0u);
}

TEST_F(ReplacedInThePhase, ALifeThatHasNotSeenItsFilesReportsThemToTheNextScheduler) {
  const std::string job = ReplaceWithTasks(0);
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  EXPECT_FALSE(c_->Phase(job, 1)->ready());
  EXPECT_EQ(Rejoin(job).resume().train().examples(), 14u);
  EXPECT_EQ(c_->Task(job, 1, 0, 0, 1)->task().id(), 2u);
}

TEST_F(ReplacedInThePhase, ARankThatIsReplacedTwiceContinues) {
  const std::string job = ReplaceWithTasks(0);
  Rejoin(job);
  EXPECT_EQ(c_->Task(job, 1, 0, 0, 1)->task().id(), 2u);
  Kill(ROLE_WORKER, 1, /*pid=*/2);
  c_->workers_[1] = c_->Join(ROLE_WORKER, 1, /*pid=*/3);
  c_->PollAll();
  Rejoin(job);
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  const NextTaskReply rest = *c_->Task(job, 1, 0, 0, 1);
  EXPECT_EQ(rest.task().id(), 2u);
  EXPECT_EQ(rest.task().first_offset(), 4u);
  EXPECT_EQ(c_->Status(job).recovery().worker_losses(), 2u);
}

TEST_F(ReplacedInThePhase, APhaseThatBeganWithAVacantRankIsAdopted) {
  const std::string job = Train(Config(-1));
  EXPECT_TRUE(c_->Phase(job, 1, Trained(2, 50)).ok());
  Kill(ROLE_WORKER, 1);
  EXPECT_TRUE(c_->Phase(job, 0, Trained(2, 50)).ok());
  EXPECT_EQ(c_->Phase(job, 0)->phase().number(), 3u);
  c_->workers_[1] = c_->Join(ROLE_WORKER, 1, /*pid=*/2);
  c_->PollAll();
  const Phase phase = Rejoin(job);
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  EXPECT_EQ(c_->Phase(job, 1)->phase().DebugString(), phase.DebugString());
}

TEST_F(ReplacedInThePhase, WithoutTheRecordOfTheLossTheJobRollsBack) {
  const std::string job = ReplaceWithTasks(0);
  Rejoin(job);
  Keep();
  // The commit was cut after the run's record.
  ASSERT_EQ(records_.erase("task/" + job + "/2/0000000003"), 1u);
  records_.erase("task/" + job + "/2/0000000004");
  Start();
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
}

TEST_F(JobAdoptionTest, ARepeatedRequestForATaskIsRecordedOnce) {
  const std::string job = Train(Config(0));
  EXPECT_TRUE(c_->Task(job, 0, 0, 0, 1).ok());
  Keep();
  const auto before = records_;
  EXPECT_TRUE(c_->Task(job, 0, 0, 0, 1).ok());
  Keep();
  EXPECT_EQ(records_, before);
}

TEST_F(JobAdoptionTest, ARecordOfARankThatTheJobLacksIsRefused) {
  for (const bool asked : {true, false}) {
    pserver_holds_.clear();
    worker_holds_.clear();
    records_.clear();
    Start();
    const std::string job = Train(Config(0));
    TaskRecord task;
    task.set_rank(1u << 31);
    if (asked) task.mutable_asked()->set_rank(1u << 31);
    if (!asked) *task.mutable_ended() = Trained(2, 50);
    Keep();
    records_["task/" + job + "/2/0000000000"] = task.SerializeAsString();
    Restart();
    EXPECT_EQ(c_->State(job), JOB_RECOVERING);
  }
}

TEST_F(JobAdoptionTest, OnlyThePhaseThatWasReplayedIsDoubted) {
  const std::string job = Train(Config(-1, /*epochs=*/3));
  Restart();
  ReturnAll();
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Trained(2, 50)).ok());
  // A refused report is the rank's mistake now.
  EXPECT_TRUE(absl::IsInvalidArgument(c_->Phase(job, 0, Trained(7, 50)).status()));
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  // A registration that is repeated still gets the same answer.
  EXPECT_TRUE(Return(ROLE_WORKER, 0));
  EXPECT_TRUE(Return(ROLE_PSERVER, 0));
}

TEST_F(JobAdoptionTest, AnAdoptedJobDoesNotRollBackPastADamagedCheckpoint) {
  const std::string job = Train(Config(-1));
  points_[job] = absl::DataLossError("step-4/wide.0.shard is damaged");
  Restart();
  ReturnAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
  c_->PollAll();
  c_->WriteOutputs();
  EXPECT_EQ(c_->State(job), JOB_FAILED);
  EXPECT_THAT(c_->Status(job).message(), HasSubstr("wide.0.shard"));
}

TEST_F(JobAdoptionTest, ARegistrationThatIsRepeatedGetsTheSameAnswer) {
  Train(Config(-1));
  Restart();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Return(ROLE_PSERVER, 0));
    EXPECT_TRUE(Return(ROLE_WORKER, 0));
  }
}

TEST_F(JobAdoptionTest, TheSuccessorOfAPserverThatIsLostLaterTakesOverItsShards) {
  for (const bool of_attempt : {true, false}) {
    SCOPED_TRACE(of_attempt);
    Clear();
    const std::string job = Train(Config(0));
    const uint64_t instance = c_->desired_[c_->pservers_[0]].host(0).instance();
    points_[job] = Checkpoint(of_attempt ? instance : instance + 1);
    Restart();
    ReturnAll();
    Kill(ROLE_PSERVER, 1);
    c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
    c_->PollAll();
    EXPECT_EQ(c_->State(job), JOB_RUNNING);
    EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
    const JobSpec& spec = c_->desired_[c_->pservers_[1]].host(0);
    ASSERT_TRUE(spec.has_takeover());
    EXPECT_EQ(spec.takeover().checkpoint(), of_attempt ? "/out/checkpoints/step-3" : "");
  }
}

TEST_F(JobAdoptionTest, AWorkerThatDoesNotReturnShrinksAJobThatMayShrink) {
  JobConfig config = Config(-1);
  config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
  const std::string job = Train(config);
  Restart();
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(Return(ROLE_PSERVER, rank));
  EXPECT_TRUE(Return(ROLE_WORKER, 0));
  for (int i = 0; i < 11; ++i) {
    c_->PollAll();
    c_->Advance(absl::Seconds(1));
  }
  c_->PollAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  EXPECT_EQ(c_->Status(job).worker_num(), 1);
  EXPECT_EQ(c_->Status(job).recovery().shrinks(), 1);
}

TEST_F(JobAdoptionTest, AnAttemptIsAdoptedInThePhaseInWhichAPserverWasReplaced) {
  const std::string job = Train(Config(0));
  const uint64_t first = c_->Task(job, 0, 0, 0, 1)->task().id();
  Kill(ROLE_PSERVER, 1);
  Keep();
  EXPECT_EQ(records_.count("run/" + job), 0) << "nobody can be adopted in its place";
  const uint64_t other = c_->Task(job, 1, 0, 0, 1)->task().id();
  c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
  c_->PollAll();
  const JobSpec spec = c_->desired_[c_->pservers_[0]].host(0);
  const auto second = c_->Task(job, 0, 0, first, 2, 5);
  ASSERT_TRUE(second.ok()) << second.status();
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  EXPECT_EQ(c_->Status(job).message(), "");
  EXPECT_EQ(c_->desired_[c_->pservers_[1]].host(0).route().generation(), spec.route().generation());
  const auto repeated = c_->Task(job, 0, 0, first, 2, 5);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->task().id(), second->task().id());
  const auto next = c_->Task(job, 1, 0, other, 2, 5);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(std::set<uint64_t>({first, other, second->task().id(), next->task().id()}).size(), 4u);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
  EXPECT_EQ(c_->Status(job).recovery().pserver_losses(), 1);
}

TEST_F(JobAdoptionTest, APhaseThatBeganWithoutAPserverIsAdoptedOnceItIsReplaced) {
  const std::string job = Train(Config(0));
  Kill(ROLE_PSERVER, 1);
  for (const uint32_t rank : {0, 1}) {
    for (uint64_t last = 0, number = 1;; ++number) {
      const auto task = c_->Task(job, rank, 0, last, number, last == 0 ? 0 : 5);
      ASSERT_TRUE(task.ok()) << task.status();
      if (task->kind() != NextTaskReply::TASK) break;
      last = task->task().id();
    }
    EXPECT_TRUE(c_->Phase(job, rank, Trained(2, 25)).ok());
  }
  EXPECT_EQ(c_->Phase(job, 0)->phase().epoch(), 1);
  c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
  c_->PollAll();
  Restart();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  ReturnAll();
  EXPECT_EQ(c_->Phase(job, 0)->phase().epoch(), 1);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 0);
}

TEST_F(JobAdoptionTest, CurvesShowTheRestartAndTheAgeOfTheNewestCheckpoint) {
  const std::string job = Train(Config(-1));
  points_[job] = Checkpoint(c_->desired_[c_->pservers_[0]].host(0).instance());
  Restart();
  ReturnAll();
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(c_->Phase(job, rank, Trained(2, 50)).ok());
  std::set<std::string> tags;
  for (const OutputAction& action : c_->WriteOutputs()) {
    for (const Scalar& point : action.scalars) tags.insert(point.tag);
  }
  EXPECT_EQ(tags.count("recovery/scheduler_restarts"), 1);
  EXPECT_EQ(tags.count("checkpoint/age_s"), 1);
}

// An attempt of two pservers that follow each other is adopted.
class AdoptedFollowersTest : public JobAdoptionTest {
 protected:
  AdoptedFollowersTest() {
    JobConfig config = Config(0);
    config.mutable_recovery()->set_replicas(1);
    job_ = Train(config);
    Restart();
    ReturnAll();
  }
  const JobSpec& Hosted(uint32_t pserver) { return c_->desired_[c_->pservers_[pserver]].host(0); }
  // Pserver 0 reports that it has complete copies of pserver 1. `generation`: of its route; 0: the
  // present one.
  void ReportCopies(uint64_t generation = 0) {
    HostedJob more;
    more.add_copies()->set_pserver(1);
    more.mutable_copies(0)->set_complete(true);
    if (generation != 0) more.set_generation(generation);
    c_->hosted_more_[c_->pservers_[0]] = more;
  }
  // Pserver 1 is lost, and another process comes.
  void LosePserver1() {
    Kill(ROLE_PSERVER, 1);
    c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
    c_->PollAll();
  }

  std::string job_;
};

TEST_F(AdoptedFollowersTest, TheFollowersContinue) {
  EXPECT_THAT(Hosted(0).follower(), testing::ElementsAre(1, 0));
  const uint64_t generation = Hosted(0).route().generation();
  c_->PollAll();
  EXPECT_EQ(Hosted(0).route().generation(), generation) << "nothing has changed";
  EXPECT_EQ(c_->Status(job_).recovery().rollbacks(), 0);
}

TEST_F(AdoptedFollowersTest, ASuccessorReadsCopiesThatAreCompleteUnderThePresentRoute) {
  ReportCopies();
  c_->PollAll();
  LosePserver1();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "ps0");
}

TEST_F(AdoptedFollowersTest, CopiesThatAreReportedUnderAnEarlierRouteDoNotCount) {
  ReportCopies(Hosted(0).route().generation());
  c_->PollAll();
  LosePserver1();  // its own follower is gone: the route changes
  EXPECT_EQ(c_->desired_[c_->pservers_[1]].host_size(), 0) << "waits for a report of the follower";
  ReportCopies();
  c_->PollAll();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "ps0");
}

TEST_F(AdoptedFollowersTest, WithoutCompleteCopiesASuccessorReadsTheCheckpoint) {
  LosePserver1();
  ASSERT_TRUE(Hosted(1).has_takeover());
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "");
  EXPECT_EQ(c_->Status(job_).recovery().rollbacks(), 0);
}

}  // namespace
}  // namespace sluice

// Loses pservers of async and Geo jobs in a whole core with fake members: in every phase, one after
// another and together, with checkpoints and without.
#include "scheduler/recovery/shard_takeover.h"

#include <gmock/gmock.h>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ShardTakeoverTest : public testing::Test {
 protected:
  explicit ShardTakeoverTest(uint32_t workers = 3) : c_(2, workers) { c_.JoinAll(2, workers); }

  static JobConfig Config(int k_steps = 0, uint32_t epochs = 1) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.clear_recovery();
    return config;
  }
  static PhaseReport Seen(uint32_t rank) {
    PhaseReport report = Indexed(50, rank);
    if (rank != 0) return report;
    DataFile* const file = report.mutable_index()->add_files();
    file->set_path("train.csv");
    file->set_bytes(1000);  // ten tasks
    return report;
  }
  // Runs a job up to phase `number`, which it only begins: 1 INDEX, 2 TRAIN, 3 EVAL, 4 SAVE.
  void LeadTo(uint64_t number, const JobConfig& config = Config()) {
    job_ = c_.Run(config);
    for (uint64_t phase = 1; phase < number; ++phase) EndPhase(phase);
  }
  void EndPhase(uint64_t number) {
    for (const uint32_t rank : {0, 1}) {
      PhaseReport report = number == 1 ? Seen(rank) : Ended(number);
      if (number == 2) report = Trained(number, TrainTasks(rank));
      EXPECT_TRUE(c_.Phase(job_, rank, report).ok());
    }
    c_.PollAll();
  }
  uint64_t TrainTasks(uint32_t rank) {
    uint64_t done = 0, trained = 0;
    while (true) {
      const auto task = c_.Task(job_, rank, 0, done);
      EXPECT_TRUE(task.ok()) << task.status();
      if (!task.ok() || task->kind() != NextTaskReply::TASK) return trained;
      done = task->task().id();
      trained += 10;
    }
  }
  void Kill(Role role, uint32_t rank, uint32_t pid = 1) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(pid);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9");
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase((role == ROLE_PSERVER ? c_.pservers_ : c_.workers_)[rank]);
  }
  // Another process registers for the pserver's rank. It reports what `more` says.
  void Replace(uint32_t rank, std::optional<HostedJob> more = HostedJob(), uint32_t pid = 2) {
    RegisterRequest request = FakeCluster::Registration(ROLE_PSERVER, rank, pid);
    request.set_address(absl::StrCat("ps", rank, "-", pid));
    c_.pservers_[rank] = c_.Join(request);
    c_.hosted_more_[c_.pservers_[rank]] = std::move(more);
  }
  static HostedJob Reports(uint64_t lost, std::vector<uint32_t> awaited = {}) {
    HostedJob more;
    more.set_updates_lost(lost);
    for (const uint32_t rank : awaited) more.add_awaited_ranks(rank);
    return more;
  }
  const JobSpec& Hosted(uint32_t pserver) { return c_.desired_[c_.pservers_[pserver]].host(0); }
  Route RouteNow() {
    GetRouteRequest request;
    // The newest life of a rank.
    auto pass = c_.core_.passes().begin();
    for (auto one = pass; one != c_.core_.passes().end(); ++one) {
      if (std::get<2>(one->first) > std::get<2>(pass->first)) pass = one;
    }
    request.set_job_id(job_);
    request.set_rank(std::get<1>(pass->first));
    request.set_incarnation(std::get<2>(pass->first));
    request.set_pass(pass->second);
    return c_.core_.workers().GetRoute(request)->route();
  }
  Recovery Counts() { return c_.Status(job_).recovery(); }
  JobResult Result() {
    for (OutputAction& action : c_.WriteOutputs()) {
      if (action.kind == OutputAction::kEnded) return action.result;
    }
    ADD_FAILURE() << "the job has not ended: " << c_.Status(job_).DebugString();
    return JobResult();
  }

  FakeCluster c_;
  std::string job_;
};

class InEveryPhase : public ShardTakeoverTest,
                     public testing::WithParamInterface<std::tuple<int, uint64_t>> {};

TEST_P(InEveryPhase, TheAttemptContinuesWhileAnotherProcessTakesTheShards) {
  const auto [k_steps, phase] = GetParam();
  LeadTo(phase, Config(k_steps));
  const JobSpec before = Hosted(0);
  const uint64_t life = c_.Incarnation(job_, 0);
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_THAT(c_.Status(job_).waiting_for(),
              AllOf(HasSubstr("waits for pserver 1 to register"), HasSubstr("killed by signal 9")));
  EXPECT_THAT(RouteNow().vacant(), ElementsAre(1));
  EXPECT_EQ(RouteNow().generation(), before.route().generation());
  Replace(1, Reports(7, {1}));
  c_.PollAll();
  EXPECT_EQ(Hosted(1).route().pservers(1), "ps1-2");
  EXPECT_EQ(Hosted(1).route().generation(), before.route().generation() + 1);
  EXPECT_EQ(Hosted(1).instance(), before.instance());
  EXPECT_TRUE(Hosted(1).has_takeover());
  EXPECT_EQ(Hosted(1).takeover().checkpoint(), "");
  EXPECT_THAT(Hosted(1).incarnations(), ElementsAre(life, c_.Incarnation(job_, 1)));
  EXPECT_EQ(c_.Incarnation(job_, 0), life) << "the workers continue";
  EXPECT_EQ(RouteNow().vacant_size(), 0);
  EXPECT_THAT(c_.Status(job_).waiting_for(), AllOf(HasSubstr("rank 1"), HasSubstr("ps1-2")));
  c_.hosted_more_[c_.pservers_[1]] = Reports(19);
  c_.PollAll();
  EXPECT_THAT(c_.Status(job_).waiting_for(), testing::Not(HasSubstr("ps1-2")));
  for (int i = 0; i < 4; ++i) {
    const auto reply = c_.Phase(job_, 0);
    ASSERT_TRUE(reply.ok()) << reply.status();
    if (!reply->ready() || reply->phase().kind() == Phase::FINISH) break;
    EndPhase(reply->phase().number());
  }
  c_.Advance(absl::Seconds(3));
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.recovery().pserver_losses(), 1u);
  EXPECT_EQ(result.recovery().rollbacks(), 0u);
  EXPECT_EQ(result.recovery().updates_lost(), 19u);
  EXPECT_EQ(result.recovery().examples_replayed(), 0u);
  EXPECT_EQ(result.examples(), 100u);
  EXPECT_THAT(
      result.recovery().last(),
      AllOf(HasSubstr("pserver 1"), HasSubstr("killed by signal 9"), HasSubstr("19 updates")));
}

INSTANTIATE_TEST_SUITE_P(Phases, InEveryPhase,
                         testing::Combine(testing::Values(0, 2), testing::Range<uint64_t>(1, 5)));

TEST_F(ShardTakeoverTest, TheJobEndsOnlyWhenRestoredShardsHaveHeardFromEveryRank) {
  LeadTo(4);
  Kill(ROLE_PSERVER, 0);
  Replace(0, Reports(1, {1}));
  c_.PollAll();
  EndPhase(4);
  c_.Advance(absl::Seconds(3));
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  c_.hosted_more_[c_.pservers_[0]] = Reports(2);
  c_.PollAll();
  c_.Advance(absl::Seconds(3));
  EXPECT_EQ(Result().recovery().updates_lost(), 2u);
  EXPECT_EQ(c_.State(job_), JOB_DONE);
}

TEST_F(ShardTakeoverTest, ALossWhileTheJobOnlyWaitsForItsEndDoesNotHoldIt) {
  LeadTo(4);
  Kill(ROLE_PSERVER, 0);
  Replace(0, Reports(1, {1}));
  c_.PollAll();
  EndPhase(4);
  Kill(ROLE_WORKER, 1);
  c_.Advance(absl::Seconds(3));
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "done");
  EXPECT_THAT(result.warnings(), testing::Contains(HasSubstr("updates_lost")));
}

TEST_F(ShardTakeoverTest, ARankThatTheShardsNeverHearFromHoldsTheJobForABoundedTime) {
  JobConfig config = Config();
  config.mutable_recovery()->set_wait_s(5);
  LeadTo(4, config);
  Kill(ROLE_PSERVER, 0);
  Replace(0, std::nullopt);
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
  };
  pass(4);
  c_.hosted_more_[c_.pservers_[0]] = Reports(1, {1});
  c_.PollAll();
  EndPhase(4);
  pass(4);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << "each step has its own bound";
  pass(4);
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.recovery().updates_lost(), 1u);
  EXPECT_THAT(result.warnings(),
              testing::Contains(AllOf(HasSubstr("pserver 0"), HasSubstr("updates_lost"))));
}

TEST_F(ShardTakeoverTest, PserversLostOneAfterAnotherAndTogether) {
  LeadTo(2);
  for (uint32_t loss = 0; loss < 3; ++loss) {
    Kill(ROLE_PSERVER, 1, loss + 1);
    Replace(1, Reports(10 * (loss + 1)), loss + 2);
    c_.PollAll();
    EXPECT_EQ(c_.Status(job_).waiting_for().find("ps1"), std::string::npos);
  }
  EXPECT_EQ(Counts().updates_lost(), 30u);
  Kill(ROLE_PSERVER, 0);
  Kill(ROLE_PSERVER, 1, 4);
  EXPECT_THAT(RouteNow().vacant(), ElementsAre(0, 1));
  EXPECT_THAT(c_.Status(job_).waiting_for(), AllOf(HasSubstr("pserver 0"), HasSubstr("pserver 1")));
  Replace(1, Reports(31), 5);
  c_.PollAll();
  EXPECT_THAT(RouteNow().vacant(), ElementsAre(0));
  Replace(0, Reports(4), 2);
  c_.PollAll();
  EXPECT_EQ(RouteNow().vacant_size(), 0);
  EXPECT_EQ(Counts().pserver_losses(), 5u);
  EXPECT_EQ(Counts().rollbacks(), 0u);
  EXPECT_EQ(Counts().updates_lost(), 35u);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
}

TEST_F(ShardTakeoverTest, ASuccessorThatIsLostWhileItOpensTheTablesIsReplaced) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  Replace(1, std::nullopt);
  c_.PollAll();
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("ps1-2"));
  EXPECT_THAT(RouteNow().vacant(), ElementsAre(1)) << "requests still have to wait";
  Kill(ROLE_PSERVER, 1, 2);
  Replace(1, Reports(3), 3);
  c_.PollAll();
  EXPECT_EQ(RouteNow().vacant_size(), 0);
  EXPECT_EQ(Counts().pserver_losses(), 2u);
  EXPECT_EQ(Counts().updates_lost(), 3u);
}

TEST_F(ShardTakeoverTest, AProcessThatDoesNotComeOrNotOpenEndsTheJob) {
  for (const bool comes : {false, true}) {
    JobConfig config = Config();
    config.mutable_recovery()->set_wait_s(5);
    LeadTo(2, config);
    Kill(ROLE_PSERVER, 1, comes ? 2 : 1);
    const auto pass = [&](int seconds) {
      for (int i = 0; i < seconds; ++i) {
        c_.PollAll();
        c_.Advance(absl::Seconds(1));
      }
    };
    pass(3);
    if (comes) Replace(1, std::nullopt, 3);
    pass(3);
    if (comes) {
      EXPECT_EQ(c_.State(job_), JOB_RUNNING) << "each step has its own bound";
    }
    pass(4);
    const JobResult result = Result();
    EXPECT_EQ(result.status(), "failed");
    EXPECT_THAT(result.message(), AllOf(HasSubstr("pserver 1"), HasSubstr("wait_s")));
    if (!comes) Replace(1);
    c_.PollAll();
    c_.incarnations_.clear();
  }
}

TEST_F(ShardTakeoverTest, ReadingACheckpointHasNoBoundWhileItProgresses) {
  JobConfig config = Config();
  config.mutable_recovery()->set_wait_s(5);
  LeadTo(2, config);
  Kill(ROLE_PSERVER, 1);
  Replace(1, std::nullopt);
  for (uint64_t second = 1; second <= 20; ++second) {
    PollRequest report;
    report.set_member_id(c_.pservers_[1]);
    HostedJob* const hosted = report.add_hosted();
    hosted->set_job_id(job_);
    hosted->set_instance(Hosted(0).instance());
    hosted->set_loaded_bytes(second << 20);
    hosted->set_load_bytes(100 << 20);
    ASSERT_TRUE(c_.core_.Poll(report, c_.now_).ok());
    c_.Poll(c_.pservers_[0]).status().IgnoreError();
    for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
    c_.Advance(absl::Seconds(1));
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  }
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("20.0 of 100.0 MiB"));
}

TEST_F(ShardTakeoverTest, AWorkerLostSomeTimeAfterATakeoverIsReplacedWithoutARollback) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  Replace(1, Reports(5));
  c_.PollAll();
  const uint64_t lost = c_.Incarnation(job_, 0);
  Kill(ROLE_WORKER, 0);
  RankPosition held;
  held.set_incarnation(lost);
  held.set_sequence(12);
  for (const uint64_t id : c_.pservers_) c_.held_[id] = {held, RankPosition()};
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_NE(c_.Incarnation(job_, 0), lost);
  EXPECT_EQ(Counts().rollbacks(), 0u);
  EXPECT_EQ(Counts().updates_lost(), 5u);
  // The next pserver that is lost learns what that life had delivered.
  Kill(ROLE_PSERVER, 0);
  Replace(0);
  c_.PollAll();
  ASSERT_EQ(Hosted(0).takeover().ended_size(), 1);
  EXPECT_EQ(Hosted(0).takeover().ended(0).rank(), 0u);
  EXPECT_EQ(Hosted(0).takeover().ended(0).incarnation(), lost);
  EXPECT_EQ(Hosted(0).takeover().ended(0).sequence(), 12u);
  EXPECT_EQ(Counts().rollbacks(), 0u);
}

TEST_F(ShardTakeoverTest, AWorkerLostDuringATakeoverRollsTheJobBack) {
  for (const bool opened : {false, true}) {
    LeadTo(2);
    Kill(ROLE_PSERVER, 1, opened ? 2 : 1);
    if (opened) Replace(1, Reports(5, {0}), 3);
    c_.PollAll();
    EXPECT_EQ(Counts().updates_lost(), opened ? 5u : 0u);
    Kill(ROLE_WORKER, 0, opened ? 2 : 1);
    EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
    if (!opened) Replace(1);
    c_.hosted_more_.clear();
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_EQ(Counts().rollbacks(), 1u);
    EXPECT_EQ(Counts().updates_lost(), 0u) << "all of it is trained again";
    EXPECT_FALSE(Hosted(1).has_takeover());
    EXPECT_EQ(RouteNow().vacant_size(), 0);
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.WriteOutputs();
    c_.workers_[0] = c_.Join(ROLE_WORKER, 0, 2);
    c_.PollAll();
    c_.incarnations_.clear();
  }
}

TEST_F(ShardTakeoverTest, AnErrorOfTheSuccessorEndsTheJob) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  HostedJob more;
  more.set_error("cannot restore shards from checkpoint /c/step-3: embedding.0 is damaged");
  Replace(1, more);
  c_.PollAll();
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "failed");
  EXPECT_THAT(result.message(), AllOf(HasSubstr("ps1-2"), HasSubstr("embedding.0")));
}

class TakeoverAndCheckpointsTest : public ShardTakeoverTest {
 protected:
  void Train() {
    JobConfig config = Config(/*k_steps=*/0, /*epochs=*/2);
    config.mutable_checkpoint()->set_every_s(10);
    config.mutable_checkpoint()->set_keep(1);
    config.set_output_dir("/out");
    LeadTo(2, config);
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_.Task(job_, rank, 0, 0).ok());
    c_.steps_done_ = 3;
    Pass(11);
  }
  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
    c_.PollAll();
  }
  // The checkpoint that the ranks are asked for; 0: none.
  uint64_t Asked() { return c_.desired_[c_.workers_[0]].assignment().checkpoint().number(); }
  void RanksMakeTheirParts(uint64_t number) {
    for (const uint32_t rank : {0, 1}) {
      WorkerCut cut;
      cut.set_job_id(job_);
      cut.set_rank(rank);
      cut.set_incarnation(c_.Incarnation(job_, rank));
      cut.set_checkpoint(number);
      cut.mutable_state()->mutable_train()->set_steps(c_.steps_done_);
      c_.worker_cuts_[c_.workers_[rank]] = cut;
    }
    c_.PollAll();
  }
  void PserversReport(uint64_t number, HostedCut::State state) {
    for (const uint64_t id : c_.pservers_) {
      HostedCut cut;
      cut.set_checkpoint(number);
      cut.set_state(state);
      cut.set_step(3);
      cut.add_least();
      cut.add_least();
      c_.hosted_cuts_[id] = cut;
    }
    c_.PollAll();
  }
};

TEST_F(TakeoverAndCheckpointsTest, ShardsContinueFromTheNewestCheckpointOfThisAttempt) {
  Train();
  ASSERT_EQ(Asked(), 1u);
  RanksMakeTheirParts(1);
  PserversReport(1, HostedCut::WRITTEN);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.PollAll();
  c_.hosted_cuts_.clear();
  Kill(ROLE_PSERVER, 1);
  Replace(1, Reports(0, {0}));
  Pass(30);
  EXPECT_EQ(Hosted(1).takeover().checkpoint(), "/out/checkpoints/step-3");
  EXPECT_EQ(Asked(), 0u) << "no other one before all ranks were heard";
  c_.hosted_more_.clear();
  Pass(2);
  EXPECT_EQ(Asked(), 2u);
  EXPECT_THAT(Counts().last(), HasSubstr("/out/checkpoints/step-3"));
  // The next attempt's shards were never in that checkpoint's lives.
  Kill(ROLE_PSERVER, 1, 2);
  Kill(ROLE_WORKER, 0);
  Replace(1, HostedJob(), 3);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Hosted(1).restore().directory(), "/out/checkpoints/step-3");
  Kill(ROLE_PSERVER, 1, 3);
  Replace(1, HostedJob(), 4);
  c_.PollAll();
  EXPECT_TRUE(Hosted(1).has_takeover());
  EXPECT_EQ(Hosted(1).takeover().checkpoint(), "");
  EXPECT_EQ(Hosted(1).restore().directory(), "/out/checkpoints/step-3");
}

TEST_F(TakeoverAndCheckpointsTest, OpenCheckpointIsGivenUpAndItsFilesAreRemoved) {
  Train();
  RanksMakeTheirParts(1);
  PserversReport(1, HostedCut::WRITING);
  c_.core_.TakeActions();
  c_.hosted_cuts_.clear();
  Kill(ROLE_PSERVER, 0);
  int discarded = 0;
  for (const OutputAction& action : c_.core_.TakeActions())
    discarded += action.kind == OutputAction::kDiscard;
  EXPECT_EQ(discarded, 1);
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 1u);
  Replace(0);
  Pass(12);
  EXPECT_EQ(Hosted(0).takeover().checkpoint(), "");
  EXPECT_EQ(Asked(), 2u);
}

TEST_F(TakeoverAndCheckpointsTest, AManifestThatIsBeingWrittenIsAwaited) {
  Train();
  RanksMakeTheirParts(1);
  PserversReport(1, HostedCut::WRITTEN);
  Kill(ROLE_PSERVER, 1);
  Replace(1);
  c_.PollAll();
  EXPECT_THAT(RouteNow().vacant(), ElementsAre(1));
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.PollAll();
  EXPECT_EQ(Hosted(1).takeover().checkpoint(), "/out/checkpoints/step-3");
  EXPECT_EQ(RouteNow().vacant_size(), 0);
}

class ReplicasTest : public ShardTakeoverTest {
 protected:
  static JobConfig Replicated() {
    JobConfig config = Config();
    config.mutable_recovery()->set_replicas(1);
    return config;
  }
  // The report of a pserver that has complete copies of `primary`.
  static HostedJob Copies(uint32_t primary) {
    HostedJob more;
    more.add_copies()->set_pserver(primary);
    more.mutable_copies(0)->set_complete(true);
    return more;
  }
};

TEST_F(ReplicasTest, ASuccessorReadsCompleteCopiesAndTheSurvivorIsFollowedAgain) {
  LeadTo(2, Replicated());
  const uint64_t before = Hosted(0).route().generation();
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(1, 0));
  c_.hosted_more_[c_.pservers_[0]] = Copies(1);
  c_.PollAll();
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(0, 0)) << "its own copies are void";
  EXPECT_EQ(Hosted(0).route().generation(), before + 1);
  Replace(1, Reports(0, {1}));
  c_.PollAll();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "ps0");
  EXPECT_THAT(Hosted(1).follower(), ElementsAre(0, 0));
  EXPECT_EQ(Hosted(1).route().generation(), before + 2);
  c_.hosted_more_[c_.pservers_[1]] = Reports(0);
  c_.hosted_more_[c_.pservers_[0]] = HostedJob();
  c_.PollAll();
  c_.PollAll();
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(1, 0));
  EXPECT_EQ(Counts().updates_lost(), 0u);
}

TEST_F(ReplicasTest, OneWarningSaysThatCopiesAreMissingForLong) {
  LeadTo(2, Replicated());
  const auto warnings = [&] { return c_.Status(job_).warnings(); };
  c_.hosted_more_[c_.pservers_[0]] = Copies(1);
  c_.hosted_more_[c_.pservers_[1]] = Copies(0);
  c_.PollAll();
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.Advance(absl::Seconds(1));
      c_.PollAll();
    }
  };
  pass(100);
  EXPECT_THAT(warnings(), testing::Not(testing::Contains(HasSubstr("copies"))));
  c_.hosted_more_[c_.pservers_[1]] = HostedJob();
  pass(50);
  EXPECT_THAT(warnings(), testing::Not(testing::Contains(HasSubstr("copies"))));
  pass(100);
  EXPECT_THAT(warnings(), testing::Contains(HasSubstr("copies")).Times(1));
}

TEST_F(ReplicasTest, CopiesThatWereReadAndDroppedBeforeTheSuccessorOpensAreNamed) {
  LeadTo(2, Replicated());
  c_.hosted_more_[c_.pservers_[0]] = Copies(1);
  c_.PollAll();
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  Replace(1, std::nullopt);
  c_.PollAll();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "ps0");
  c_.hosted_more_[c_.pservers_[0]] = HostedJob();
  c_.PollAll();
  EXPECT_EQ(Hosted(1).follower(1), 1u);
  c_.hosted_more_[c_.pservers_[1]] = Reports(0);
  c_.PollAll();
  c_.PollAll();
  EXPECT_THAT(RouteNow().vacant(), testing::IsEmpty());
  EXPECT_EQ(Counts().updates_lost(), 0u);
}

TEST_F(ReplicasTest, WithoutCompleteCopiesASuccessorReadsTheCheckpoint) {
  LeadTo(2, Replicated());
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  Replace(1, Reports(5, {1}));
  c_.PollAll();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "");
  EXPECT_EQ(Hosted(1).follower(1), 1u);
  c_.hosted_more_[c_.pservers_[1]] = Reports(5);
  c_.PollAll();
  c_.PollAll();
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(1, 0));
  EXPECT_EQ(Counts().updates_lost(), 5u);
}

TEST_F(ReplicasTest, ASuccessorWhoseFollowerDiesReadsTheCheckpointInstead) {
  LeadTo(2, Replicated());
  c_.hosted_more_[c_.pservers_[0]] = Copies(1);
  c_.PollAll();
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  Replace(1, std::nullopt);  // it reads, and has not opened the tables
  c_.PollAll();
  EXPECT_EQ(Hosted(1).takeover().copies_at(), "ps0");
  Kill(ROLE_PSERVER, 0);
  c_.PollAll();
  EXPECT_EQ(Hosted(1).follower(1), 1u);
}

TEST_F(ReplicasTest, APserverThatCannotReachItsFollowerIsReleased) {
  LeadTo(2, Replicated());
  const uint64_t before = Hosted(0).route().generation();
  HostedJob broken;
  broken.mutable_replication()->set_generation(before);
  broken.mutable_replication()->set_complete(true);
  broken.mutable_replication()->set_error("the stream is over");
  c_.hosted_more_[c_.pservers_[0]] = broken;
  EXPECT_TRUE(c_.Poll(c_.pservers_[0]).ok());
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(0, 0));
  EXPECT_EQ(Hosted(0).route().generation(), before + 1);
  c_.hosted_more_[c_.pservers_[0]] = HostedJob();
  c_.PollAll();
  EXPECT_THAT(Hosted(0).follower(), ElementsAre(1, 0)) << "it is followed again";
}

TEST_F(ReplicasTest, OnePserverIsRefusedWithTheFix) {
  FakeCluster one(1, 2);
  one.JoinAll(1, 2);
  const std::string job = one.Submit(Replicated()).value();
  one.PollAll();
  one.WriteOutputs();
  EXPECT_EQ(one.State(job), JOB_FAILED);
  EXPECT_THAT(one.Status(job).message(), AllOf(HasSubstr("replicas"), HasSubstr("--server_num")));
}

}  // namespace
}  // namespace sluice

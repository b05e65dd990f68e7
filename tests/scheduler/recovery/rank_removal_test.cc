// Sync jobs continue without lost workers, in a whole core with fake members: whatever the pservers
// hold of the lost ranks, with several losses, and when the cut cannot be made.
#include "scheduler/recovery/rank_removal.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// A job of three workers on two pservers, with two epochs of five global steps of 30 examples.
class RankRemovalTest : public testing::Test {
 protected:
  RankRemovalTest() : c_(2, 3) { c_.JoinAll(2, 3); }

  // Leads the job to a phase. 1: INDEX, 2: TRAIN, 3: EVAL, 4: TRAIN, 5: EVAL, 6: SAVE.
  void Begin(uint64_t phase = 2, uint64_t every_steps = 0) {
    JobConfig config = FakeCluster::Config(-1, 3, /*epochs=*/2);
    config.clear_recovery();
    config.mutable_recovery()->set_wait_s(30);
    config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
    config.mutable_checkpoint()->set_every_steps(every_steps);
    config.mutable_checkpoint()->set_keep(2);
    config.set_output_dir("/out");
    if (workers_keep_tables_) config.add_tables()->set_update_at(TableConfig::COLLECTIVE);
    job_ = c_.Run(config);
    for (uint64_t number = 1; number < phase; ++number) {
      for (const uint32_t rank : {0, 1, 2}) EndPhase(rank, number, 3);
    }
    c_.PollAll();
    c_.core_.TakeActions();
  }
  void EndPhase(uint32_t rank, uint64_t number, uint32_t ranks) {
    const uint32_t examples = 150 / ranks;
    PhaseReport report = number == 1 ? Ended(1) : Trained(number, examples);
    if (number == 1) {
      // Each rank has counted its share of the same file.
      IndexReport* const index = report.mutable_index();
      index->set_examples(examples);
      index->add_train_seen()->set_path("train.csv");
      index->mutable_train_seen(0)->set_bytes(6000);
      index->mutable_pieces()->add_file(0);
      index->mutable_pieces()->add_begin(6000 / ranks * rank);
      index->mutable_pieces()->add_end(6000 / ranks * (rank + 1));
      index->mutable_pieces()->add_examples(examples);
    }
    c_.Phase(job_, rank, report).status().IgnoreError();
  }
  // What a pserver reports of a rank. The rank has ten examples of each step.
  static RankPosition Committed(uint64_t step) {
    RankPosition position;
    position.set_committed(step);
    position.mutable_totals()->set_examples(10 * step);
    position.mutable_totals()->set_steps(step);
    position.mutable_totals()->set_net_state("net");
    if (step > 0) position.mutable_totals_before()->set_examples(10 * (step - 1));
    if (step > 0) position.mutable_totals_before()->set_steps(step - 1);
    return position;
  }
  // The last commits of the three ranks that a pserver has.
  void Hold(uint32_t pserver, std::vector<uint64_t> steps) {
    std::vector<RankPosition> held;
    for (const uint64_t step : steps) held.push_back(Committed(step));
    c_.held_[c_.pservers_[pserver]] = held;
  }
  void HoldEverywhere(const std::vector<uint64_t>& steps) {
    for (const uint32_t pserver : {0, 1}) Hold(pserver, steps);
  }
  void Kill(Role role, uint32_t rank) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(std::max(pids_[{role, rank}], 1u));
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9");
    auto& ids = role == ROLE_PSERVER ? c_.pservers_ : c_.workers_;
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase(ids[rank]);
    c_.worker_cuts_.erase(ids[rank]);
  }
  void KillWorker(uint32_t rank) {
    Kill(ROLE_WORKER, rank);
    c_.PollAll();
  }
  void Replace(Role role, uint32_t rank) {
    auto& ids = role == ROLE_PSERVER ? c_.pservers_ : c_.workers_;
    uint32_t& pid = pids_[{role, rank}];
    pid = std::max(pid, 1u) + 1;
    ids[rank] = c_.Join(role, rank, pid);
    c_.PollAll();
  }
  WorkerCheckpoint Asked(uint32_t worker) {
    return c_.desired_[c_.workers_[worker]].assignment().checkpoint();
  }
  const CutOrder& Ordered(uint32_t pserver) { return c_.desired_[c_.pservers_[pserver]].cuts(0); }
  void ExpectAsked(const std::vector<uint32_t>& workers, uint64_t number, uint64_t step) {
    for (const uint32_t worker : workers) {
      EXPECT_EQ(Asked(worker).number(), number) << "worker " << worker;
      EXPECT_EQ(Asked(worker).at_step(), step);
      EXPECT_TRUE(Asked(worker).by_order());
    }
  }
  void Answer(const std::vector<uint32_t>& workers, uint64_t number, uint64_t step) {
    for (const uint32_t worker : workers) {
      WorkerCut cut;
      cut.set_job_id(job_);
      cut.set_rank(worker);
      cut.set_incarnation(c_.Incarnation(job_, worker));
      cut.set_checkpoint(number);
      cut.set_step(step);
      cut.mutable_state()->mutable_train()->set_examples(10 * step);
      cut.mutable_state()->mutable_train()->set_steps(step);
      c_.worker_cuts_[c_.workers_[worker]] = cut;
    }
    c_.PollAll();
  }
  void Write(uint64_t number, uint64_t step, HostedCut::State state = HostedCut::WRITTEN) {
    for (const uint32_t i : {0, 1}) {
      HostedCut cut;
      cut.set_checkpoint(number);
      cut.set_state(state);
      cut.set_step(step);
      if (state == HostedCut::FAILED) cut.set_error("no space left on device");
      cut.add_files()->set_name(absl::StrCat("p-", i, ".shard"));
      c_.hosted_cuts_[c_.pservers_[i]] = cut;
    }
    c_.PollAll();
  }
  void Commit(uint64_t number) {
    c_.core_.CheckpointWritten(job_, number, absl::OkStatus(), "", c_.now_);
    c_.hosted_cuts_.clear();
    c_.PollAll();
  }
  // All that follows once the last step is known.
  void Cut(const std::vector<uint32_t>& workers, uint64_t number, uint64_t step) {
    ExpectAsked(workers, number, step);
    EXPECT_EQ(Ordered(0).now(), 0u) << "no pserver may cut before the step has closed everywhere";
    Answer(workers, number, step);
    for (const uint32_t pserver : {0, 1}) {
      EXPECT_EQ(Ordered(pserver).now(), number);
      EXPECT_EQ(Ordered(pserver).step(), step);
    }
    Write(number, step);
    Commit(number);
  }
  void ExpectRunsWith(uint32_t workers) {
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).DebugString();
    EXPECT_EQ(c_.Status(job_).worker_num(), workers);
    EXPECT_EQ(c_.desired_[c_.pservers_[0]].host(0).global_batch(), 30u);
  }
  void ExpectNothingUndone(uint32_t shrinks, uint64_t step) {
    EXPECT_EQ(Counts().shrinks(), shrinks);
    EXPECT_EQ(Counts().rollbacks(), 0u);
    EXPECT_EQ(Counts().steps_rolled_back(), 0u);
    EXPECT_EQ(Counts().examples_replayed(), 0u);
    EXPECT_THAT(Counts().last(), HasSubstr(absl::StrCat("continued after step ", step)));
    const Restore& restore = c_.desired_[c_.pservers_[0]].host(0).restore();
    EXPECT_EQ(restore.step(), step);
    EXPECT_EQ(restore.directory(), step == 0 ? "" : absl::StrCat("/out/checkpoints/step-", step));
  }
  void ExpectWentBack(uint32_t workers, const std::string& why) {
    ExpectRunsWith(workers);
    EXPECT_EQ(Counts().rollbacks(), 1u);
    EXPECT_EQ(Counts().shrinks(), 3 - workers);
    EXPECT_THAT(Warnings(), Contains(HasSubstr(why)));
  }
  std::vector<std::string> Warnings() {
    const JobStatus status = c_.Status(job_);
    return {status.warnings().begin(), status.warnings().end()};
  }
  // The phase in which rank 0 trains in the next attempt.
  Phase TrainsAgain(uint32_t workers) {
    for (uint32_t rank = 0; rank < workers; ++rank) EndPhase(rank, 1, workers);
    const Phase phase = c_.Phase(job_, 0)->phase();
    EXPECT_EQ(phase.kind(), Phase::TRAIN);
    return phase;
  }
  void Pass(int seconds) {
    for (int second = 0; second < seconds; ++second) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
  }
  Recovery Counts() { return c_.Status(job_).recovery(); }
  // A rank that keeps dense tables says where it stood when it left its group.
  void Stand(uint32_t rank, uint64_t closed, bool has_means, bool holds_tables = true) {
    const WorkerAssignment& assignment = c_.desired_[c_.workers_[rank]].assignment();
    RankGroupReport report;
    report.set_job_id(job_);
    report.set_rank(rank);
    report.set_incarnation(assignment.incarnation());
    report.set_generation(c_.Status(job_).route().generation());
    report.set_card("card");
    report.set_holds_tables(holds_tables);
    report.set_closed_steps(closed);
    report.set_has_means(has_means);
    c_.groups_[c_.workers_[rank]] = report;
    c_.PollAll();
  }

  bool workers_keep_tables_ = false;  // beside those of the pservers
  FakeCluster c_;
  std::string job_;
  std::map<std::pair<Role, uint32_t>, uint32_t> pids_;  // of members that were replaced
};

TEST_F(RankRemovalTest, TheLastCommitAtAnyPserverEndsTheAttempt) {
  struct Case {
    const char* what;
    uint64_t at_0, at_1, last;
  };
  for (const Case& one : {Case{"at one pserver", 4, 3, 4}, Case{"at the other", 3, 4, 4},
                          Case{"of the open step nowhere", 3, 3, 3}, Case{"at all", 4, 4, 4}}) {
    SCOPED_TRACE(one.what);
    Begin();
    c_.steps_done_ = 5;  // the survivors have computed a step that is not applied
    c_.PollAll();
    Hold(0, {4, one.at_0, 4});
    Hold(1, {4, one.at_1, 4});
    KillWorker(1);
    EXPECT_EQ(c_.State(job_), JOB_RUNNING);
    for (const uint32_t pserver : {0, 1}) {
      ASSERT_EQ(Ordered(pserver).commits_size(), 1);
      EXPECT_EQ(Ordered(pserver).commits(0).rank(), 1u);
      EXPECT_EQ(Ordered(pserver).commits(0).commit().sequence(), one.last);
      EXPECT_EQ(Ordered(pserver).commits(0).commit().checkpoint(), 0u);
      EXPECT_EQ(Ordered(pserver).commits(0).commit().totals().examples(), 10 * one.last);
    }
    ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, one.last));
    ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
    ExpectNothingUndone(1, one.last);
    EXPECT_THAT(Counts().last(), HasSubstr("with 2 workers"));
    EXPECT_TRUE(Ordered(0).commits().empty());
    const Phase phase = TrainsAgain(2);
    EXPECT_EQ(phase.skip_steps(), one.last);
    EXPECT_EQ(phase.resume().train().examples(), 30 * one.last) << "also those of the lost rank";
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.WriteOutputs();
    c_.PollAll();
    Replace(ROLE_WORKER, 1);
    c_.worker_cuts_.clear();
    c_.incarnations_.clear();
  }
}

TEST_F(RankRemovalTest, AStepWhoseMeansAnotherRankLacksDoesNotClose) {
  workers_keep_tables_ = true;
  Begin();
  HoldEverywhere({4, 4, 3});
  KillWorker(1);
  Stand(0, 3, /*has_means=*/true);
  EXPECT_EQ(Asked(0).number(), 0u) << "it is not known where rank 2 stands";
  Stand(2, 3, /*has_means=*/false);
  for (const uint32_t pserver : {0, 1}) {
    ASSERT_EQ(Ordered(pserver).commits_size(), 1);
    EXPECT_EQ(Ordered(pserver).commits(0).commit().sequence(), 3u);
    EXPECT_EQ(Ordered(pserver).commits(0).commit().totals().examples(), 30u);
  }
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 3));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 3);
  EXPECT_EQ(TrainsAgain(2).resume().train().examples(), 90u);
}

TEST_F(RankRemovalTest, AStepWhoseMeansAllOtherRanksHaveClosesWhenTheyHaveCommittedIt) {
  workers_keep_tables_ = true;
  Begin();
  HoldEverywhere({3, 4, 3});
  KillWorker(1);
  Stand(0, 3, /*has_means=*/true);
  Stand(2, 3, /*has_means=*/true);
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 4));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 4);
}

TEST_F(RankRemovalTest, RanksThatNeverSayWhereTheyStandTakeTheJobBack) {
  workers_keep_tables_ = true;
  Begin();
  HoldEverywhere({3, 4, 3});
  KillWorker(1);
  Stand(0, 3, /*has_means=*/true);
  Pass(31);
  ASSERT_NO_FATAL_FAILURE(ExpectWentBack(2, "other workers"));
}

TEST_F(RankRemovalTest, StandingsThatAreImpossibleTakeTheJobBack) {
  workers_keep_tables_ = true;
  Begin();
  HoldEverywhere({3, 4, 3});
  KillWorker(1);
  Stand(0, 3, /*has_means=*/true);
  Stand(2, 1, /*has_means=*/true);  // no rank is two steps ahead of another
  ASSERT_NO_FATAL_FAILURE(ExpectWentBack(2, "last one that can close"));
}

TEST_F(RankRemovalTest, AnAttemptThatHasAppliedNothingBeginsAgain) {
  Begin();
  HoldEverywhere({1, 0, 0});
  KillWorker(1);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 0);
}

TEST_F(RankRemovalTest, ACheckpointAfterTheLastStepIsUsed) {
  Begin(2, /*every_steps=*/3);
  Answer({0, 1, 2}, 1, 3);
  Write(1, 3);
  Commit(1);
  ASSERT_EQ(c_.Status(job_).checkpoint().made(), 1u);
  HoldEverywhere({4, 3, 4});
  KillWorker(1);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 3);
}

TEST_F(RankRemovalTest, AnOpenCheckpointThatNeedsNothingMoreOfTheRankEndsFirst) {
  Begin(2, /*every_steps=*/3);
  Answer({0, 1, 2}, 1, 3);
  Write(1, 3, HostedCut::WRITING);
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  EXPECT_FALSE(Asked(0).by_order());
  Write(1, 3);
  Commit(1);
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 2, 4));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 4);
}

TEST_F(RankRemovalTest, ACheckpointThatWasAskedForIsReplaced) {
  Begin(2, /*every_steps=*/3);
  EXPECT_EQ(Asked(0).number(), 1u);
  EXPECT_FALSE(Asked(0).by_order());
  HoldEverywhere({2, 2, 2});
  KillWorker(0);
  EXPECT_EQ(Ordered(0).over(), 1u) << "it may have begun at some pservers";
  ASSERT_NO_FATAL_FAILURE(Cut({1, 2}, 2, 2));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 2);
}

TEST_F(RankRemovalTest, ARankLostMeanwhileMayHaveCommittedOneStepLess) {
  Begin();
  HoldEverywhere({4, 4, 3});
  KillWorker(1);
  ExpectAsked({0, 2}, 1, 4);
  KillWorker(2);
  ASSERT_EQ(Ordered(0).commits_size(), 2);
  for (const int i : {0, 1}) {
    EXPECT_EQ(Ordered(0).commits(i).commit().sequence(), 3u);
    EXPECT_EQ(Ordered(0).commits(i).commit().totals().examples(), 30u);
  }
  ASSERT_NO_FATAL_FAILURE(Cut({0}, 2, 3));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(1));
  ExpectNothingUndone(2, 3);
  EXPECT_EQ(TrainsAgain(1).resume().train().examples(), 90u);
}

TEST_F(RankRemovalTest, ARankLostWhileTheCutIsWrittenIsLeftOutAsWell) {
  Begin();
  HoldEverywhere({5, 4, 5});
  KillWorker(1);
  ExpectAsked({0, 2}, 1, 4);
  Answer({0, 2}, 1, 4);
  Write(1, 4, HostedCut::WRITING);
  KillWorker(2);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  Write(1, 4);
  Commit(1);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(1));
  ExpectNothingUndone(2, 4);
}

TEST_F(RankRemovalTest, TheLastWorkerIsWaitedForButItsStepsAreKept) {
  Begin();
  HoldEverywhere({4, 4, 4});
  for (const uint32_t rank : {0, 1, 2}) Kill(ROLE_WORKER, rank);
  c_.PollAll();
  EXPECT_EQ(Ordered(0).now(), 1u) << "nobody is left to be asked";
  EXPECT_EQ(Ordered(0).commits_size(), 3);
  Write(1, 4);
  Commit(1);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_EQ(Counts().shrinks(), 2u);
  Replace(ROLE_WORKER, 0);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(1));
  ExpectNothingUndone(2, 4);
  EXPECT_EQ(TrainsAgain(1).resume().train().examples(), 120u);
}

TEST_F(RankRemovalTest, AWorkerThatLeavesMeanwhileIsWaitedFor) {
  Begin();
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  LeaveRequest leave;
  leave.set_member_id(c_.workers_[2]);
  c_.core_.Leave(leave, c_.now_);
  c_.desired_.erase(c_.workers_[2]);
  c_.PollAll();
  ASSERT_NO_FATAL_FAILURE(Cut({0}, 2, 4));
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("1 worker to register"));
  Replace(ROLE_WORKER, 2);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 4);
}

TEST_F(RankRemovalTest, AWorkerThatDoesNotComeBackInTimeIsLeftOutInPlace) {
  Begin();
  HoldEverywhere({4, 4, 4});
  LeaveRequest leave;
  leave.set_member_id(c_.workers_[1]);
  c_.core_.Leave(leave, c_.now_);
  c_.desired_.erase(c_.workers_[1]);
  c_.PollAll();
  EXPECT_EQ(Asked(0).number(), 0u);
  Pass(31);
  c_.PollAll();
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 4));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 4);
}

TEST_F(RankRemovalTest, AFreeWorkerTakesTheRank) {
  Begin();
  HoldEverywhere({4, 3, 4});
  KillWorker(1);
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 3));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  Replace(ROLE_WORKER, 1);
  c_.held_.clear();
  KillWorker(2);
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  EXPECT_EQ(Asked(0).number(), 0u);
  EXPECT_EQ(Counts().shrinks(), 1u);
}

TEST_F(RankRemovalTest, AnEpochThatIsBeingEvaluatedIsNotTrainedAgain) {
  Begin(/*phase=*/3);
  HoldEverywhere({5, 5, 5});
  KillWorker(1);
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 5));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 5);
  EXPECT_EQ(TrainsAgain(2).skip_steps(), 5u);
}

TEST_F(RankRemovalTest, TheFirstStepOfALaterEpochBeginsAtTheEndOfTheOneBefore) {
  Begin(/*phase=*/4);
  HoldEverywhere({6, 5, 6});
  KillWorker(1);
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 1, 5));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 5);
  EXPECT_EQ(TrainsAgain(2).epoch(), 0u) << "the end of an epoch belongs to it";
}

TEST_F(RankRemovalTest, WarnsOfCountsThatAreLostInTheFirstEpoch) {
  for (const uint64_t phase : {2, 4}) {
    Begin(phase);
    const uint64_t step = phase == 2 ? 3 : 8;
    HoldEverywhere({step, step, step});
    KillWorker(1);
    Cut({0, 2}, 1, step);
    const auto warned = Contains(HasSubstr("malformed lines"));
    if (phase == 2) {
      EXPECT_THAT(Warnings(), warned);
    }
    if (phase == 4) {
      EXPECT_THAT(Warnings(), Not(warned));
    }
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.WriteOutputs();
    c_.PollAll();
    Replace(ROLE_WORKER, 1);
    c_.worker_cuts_.clear();
    c_.incarnations_.clear();
  }
}

// ------------------------------------------------------------------------------- going back
// instead

TEST_F(RankRemovalTest, OutsideOfTrainingAndEvaluationTheJobGoesBack) {
  Begin(/*phase=*/6);
  KillWorker(1);
  ExpectWentBack(2, "save");
}

TEST_F(RankRemovalTest, APserverThatCannotWriteItsPartSendsTheJobBack) {
  Begin();
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  Answer({0, 2}, 1, 4);
  Write(1, 4, HostedCut::FAILED);
  c_.hosted_cuts_.clear();
  ExpectWentBack(2, "no space left on device");
}

TEST_F(RankRemovalTest, AManifestThatCannotBeWrittenSendsTheJobBack) {
  Begin();
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  Answer({0, 2}, 1, 4);
  Write(1, 4);
  c_.core_.CheckpointWritten(job_, 1, absl::ResourceExhaustedError("disk full"), "", c_.now_);
  c_.hosted_cuts_.clear();
  ExpectWentBack(2, "disk full");
}

TEST_F(RankRemovalTest, TheLossOfAPserverSendsTheJobBackWithoutTheRank) {
  Begin();
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  Replace(ROLE_PSERVER, 1);
  ExpectWentBack(2, "pserver 1");
}

TEST_F(RankRemovalTest, ImpossibleReportsSendTheJobBack) {
  for (const std::vector<uint64_t>& held :
       std::vector<std::vector<uint64_t>>{{4, 6, 4}, {4, 0, 2}}) {
    Begin();
    HoldEverywhere(held);
    Kill(ROLE_WORKER, 1);
    const bool both = held[2] == 2;
    if (both) Kill(ROLE_WORKER, 2);
    c_.PollAll();
    ASSERT_NO_FATAL_FAILURE(ExpectWentBack(both ? 1 : 2, "last one that can close"));
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.WriteOutputs();
    c_.PollAll();
    Replace(ROLE_WORKER, 1);
    c_.incarnations_.clear();
  }
}

TEST_F(RankRemovalTest, PserversThatDoNotReportInTimeSendTheJobBack) {
  Begin();
  HoldEverywhere({4, 4, 4});
  HostedJob earlier;
  earlier.set_generation(1);
  c_.hosted_more_[c_.pservers_[1]] = earlier;
  KillWorker(1);
  EXPECT_EQ(Asked(0).number(), 0u);
  Pass(31);
  c_.hosted_more_.clear();
  ExpectWentBack(2, "did not report");
}

TEST_F(RankRemovalTest, ACutThatMeetsTheWritersOfAnotherOneIsTriedOnceMore) {
  Begin(2, /*every_steps=*/3);
  Write(1, 3, HostedCut::WRITING);  // the ranks have not reported their parts
  HoldEverywhere({4, 4, 4});
  KillWorker(1);
  ExpectAsked({0, 2}, 2, 4);
  Answer({0, 2}, 2, 4);
  Write(2, 4, HostedCut::FAILED);
  c_.hosted_cuts_.clear();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(Counts().shrinks(), 0u);
  Pass(11);
  c_.PollAll();
  ASSERT_NO_FATAL_FAILURE(Cut({0, 2}, 3, 4));
  ASSERT_NO_FATAL_FAILURE(ExpectRunsWith(2));
  ExpectNothingUndone(1, 4);
}

}  // namespace
}  // namespace sluice

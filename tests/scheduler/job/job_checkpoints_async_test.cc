#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "scheduler/job/job_checkpoints.h"
#include "tests/scheduler/job_checkpoints_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

RankPosition PositionHeldBy(uint64_t sequence, uint64_t task, uint64_t end) {
  RankPosition held;
  held.set_incarnation(1);
  held.set_sequence(sequence);
  held.set_task_id(task);
  held.set_task_end(end);
  return held;
}

// Checkpoints of an async or Geo job with two pservers and two ranks.
class TaskCheckpointsTest : public JobCheckpointsTest {
 protected:
  static JobCheckpoints::Training Training(bool all_ranks, bool more = true) {
    JobCheckpoints::Training training;
    training.all_ranks = all_ranks;
    training.more = more;
    training.steps = StepCount(nullptr, /*before=*/0, /*worker_num=*/2);
    return training;
  }
  static JobCheckpoints MakeTraining(Mode mode, uint64_t every_steps, double every_s = 0,
                                     uint32_t every_epochs = 0, bool ranks_write = false) {
    JobCheckpoints::Options options;
    options.mode = mode;
    options.ranks_write = ranks_write;
    options.config.set_every_steps(every_steps);
    options.config.set_every_s(every_s);
    options.config.set_every_epochs(every_epochs);
    options.root = "/ckpt";
    options.worker_num = options.pserver_num = 2;
    JobCheckpoints c(options, kStart);
    c.NoteTraining(Training(/*all_ranks=*/true));
    return c;
  }
  static HostedCut Cut(HostedCut::State state, uint64_t number, uint64_t step, RankPosition rank_0,
                       RankPosition rank_1) {
    HostedCut cut = Hosted(state, number, step);
    *cut.add_least() = std::move(rank_0);
    *cut.add_least() = std::move(rank_1);
    return cut;
  }
  static WorkerCut Parked(uint32_t rank, uint64_t number, bool parked = true) {
    WorkerCut cut = Worker(rank, number, 3);
    cut.set_parked(parked);
    SavedFile* file = cut.mutable_state()->mutable_file();
    file->set_name(WorkerFileName(rank, "0123456789abcdef"));
    file->set_bytes(7);
    return cut;
  }
  static CheckpointState StateWithWorkers(uint64_t step) {
    CheckpointState state = State(step);
    state.add_workers()->mutable_train()->set_examples(111);
    state.add_workers();
    return state;
  }
};

TEST_F(TaskCheckpointsTest, DemandedCheckpointIsRetriedOnceWhileOldFilesAreWritten) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0);
  EXPECT_EQ(c.Demand(At(0)), 1u);
  c.GiveUp("no progress", At(5));
  EXPECT_EQ(c.Demand(At(6)), 2u);
  c.GiveUp("pserver 0 was lost", At(7));
  EXPECT_EQ(c.Followed(2), 3u);
  c.Plan(At(14));
  EXPECT_EQ(c.asked().number, 0u);
  c.Plan(At(15));
  EXPECT_EQ(c.asked().number, 3u);
}

// Otherwise the folder's step is that of the ranks' answers.
TEST_F(TaskCheckpointsTest, RanksThatWriteFilesKnowTheFolderBeforeTheyAnswer) {
  for (const bool write : {false, true}) {
    JobCheckpoints c = MakeTraining(Mode::kAsync, 5, 0, 0, write);
    c.NoteStep(5, At(1));
    c.Plan(At(1));
    EXPECT_EQ(c.asked().ranks_write, write);
    EXPECT_FALSE(c.asked().park);
    EXPECT_EQ(c.asked().step, 5u);
    for (const uint32_t rank : {0, 1}) {
      WorkerCut part = Worker(rank, 1, 0);
      part.mutable_state()->mutable_train()->set_steps(9);
      c.TakeWorker(part, At(2));
    }
    EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, write ? 5u : 9u}));
  }
}

TEST_F(TaskCheckpointsTest, CutsHaveBegunWhenThosePserversWithShardsHaveBegunTheirs) {
  for (const Mode mode : {Mode::kAsync, Mode::kGeo}) {
    JobCheckpoints::Options options;
    options.mode = mode;
    options.pserver_num = 2;
    options.without_shards = {0};
    JobCheckpoints c(options, kStart);
    c.NoteTraining(Training(/*all_ranks=*/true));
    c.Demand(At(1));
    c.TakeWorker(Parked(0, 1), At(1));
    EXPECT_EQ(c.ordered().number, 1u);
    EXPECT_FALSE(c.needs_state());
    c.TakeHosted(1, Hosted(HostedCut::WRITTEN, 1, 1), At(2));
    EXPECT_TRUE(c.needs_state());
    c.SetState(StateWithWorkers(1), At(2));
    if (mode == Mode::kGeo) c.TakeWorker(Parked(0, 1, /*parked=*/false), At(2));
    EXPECT_TRUE(c.TakeCommit());
  }
}

TEST_F(TaskCheckpointsTest, AllRanksAnswerBeforeThePserversAreToldToCut) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 10);
  c.NoteStep(9, At(1));
  c.Plan(At(1));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteStep(12, At(2));
  c.Plan(At(2));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0, false, false, 12}));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_EQ(c.ordered().number, 0u);
  WorkerCut part = Worker(0, 1, 4);
  part.mutable_state()->mutable_train()->set_steps(11);
  c.TakeWorker(part, At(3));
  c.TakeWorker(Worker(0, 1, 5), At(3));  // a repetition
  EXPECT_EQ(c.ordered().number, 0u);
  part = Worker(1, 1, 6);
  part.mutable_state()->mutable_train()->set_steps(16);
  c.TakeWorker(part, At(3));
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 13})) << "the mean of what they answered";
  c.TakeHosted(
      0, Cut(HostedCut::WRITING, 1, 13, PositionHeldBy(5, 2, 30), PositionHeldBy(8, 3, 10)), At(4));
  EXPECT_FALSE(c.needs_state());
  EXPECT_TRUE(c.holds_phase());
  c.TakeHosted(1, Cut(HostedCut::WRITTEN, 1, 13, PositionHeldBy(6, 2, 40), PositionHeldBy(7, 3, 5)),
               At(5));
  EXPECT_FALSE(c.holds_phase());
  ASSERT_TRUE(c.needs_state());
  const auto parts = c.Parts();
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[0].held.task_end(), 30u);
  EXPECT_EQ((*parts)[1].held.task_end(), 5u);
  EXPECT_EQ((*parts)[0].tasks, 4u);
  EXPECT_EQ((*parts)[1].state.train().examples(), 20u);
  c.SetState(StateWithWorkers(13), At(5));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeHosted(
      0, Cut(HostedCut::WRITTEN, 1, 13, PositionHeldBy(5, 2, 30), PositionHeldBy(8, 3, 10)), At(6));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->global_step(), 13u);
  EXPECT_EQ(manifest->files_size(), 2);
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(0).train().examples(), 111u);
  c.Committed(1, absl::OkStatus(), At(7));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.ordered().number, 0u);
  EXPECT_EQ(c.asked().number, 0u);
  // The same multiple is not due again.
  c.NoteStep(19, At(8));
  c.Plan(At(8));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteStep(20, At(9));
  c.Plan(At(9));
  EXPECT_EQ(c.asked().number, 2u);
}

TEST_F(TaskCheckpointsTest, APserverThatHoldsNothingOfARankIsBehindAllOthers) {
  for (const bool first : {true, false}) {
    JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 10);
    c.Plan(At(10));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(11));
    const auto none = Cut(HostedCut::WRITING, 1, 1, RankPosition(), PositionHeldBy(1, 1, 1));
    const auto some =
        Cut(HostedCut::WRITING, 1, 1, PositionHeldBy(3, 2, 9), PositionHeldBy(1, 1, 1));
    c.TakeHosted(0, first ? none : some, At(12));
    c.TakeHosted(1, first ? some : none, At(12));
    EXPECT_EQ(c.Parts()->front().held.sequence(), 0u) << first;
  }
}

TEST_F(TaskCheckpointsTest, NothingIsAskedOutsideOfTraining) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 5);
  c.NoteTraining(Training(false));
  c.Plan(At(100));
  EXPECT_EQ(c.Demand(At(101)), 1u);
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteTraining(Training(true));
  c.Plan(At(102));
  EXPECT_EQ(c.asked().number, 1u);
  EXPECT_EQ(c.Demand(At(103)), 2u) << "the open one lacks what follows";
  c.NoteTraining(Training(false, /*more=*/false));
  EXPECT_FALSE(c.can_begin());
}

TEST_F(TaskCheckpointsTest, TheEndOfAnEpochNeedsNoAnswerInAsync) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 0, 2);
  c.EpochEnds(End(0, 10, false, Mode::kAsync), At(1));
  EXPECT_FALSE(c.holds_phase());
  // A rank that is lost now has reported its part.
  c.NoteTraining(Training(false));
  c.EpochEnds(End(1, 20, true, Mode::kAsync), At(2));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_TRUE(c.finishes_job());
  EXPECT_EQ(c.asked().number, 0u);
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 20}));
  c.RankLost(1, At(3));
  for (const uint32_t i : {0, 1})
    c.TakeHosted(
        i, Cut(HostedCut::WRITTEN, 1, 20, PositionHeldBy(1, 1, 1), PositionHeldBy(1, 1, 1)), At(4));
  EXPECT_FALSE(c.holds_phase());
  EXPECT_FALSE(c.needs_state());
  EXPECT_TRUE(c.finishes_job());
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->global_step(), 20u);
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(1).train().examples(), 200u);
}

TEST_F(TaskCheckpointsTest, TheEndOfAnEpochWaitsForPserversThatAreLost) {
  for (const bool last : {false, true}) {
    for (const bool begun : {false, true}) {
      JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 0, 1);
      c.EpochEnds(End(0, 10, last, Mode::kAsync), At(1));
      for (const uint32_t i : {0, 1}) {
        if (begun) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
      }
      JobCheckpoints::Training training = Training(false);
      training.pservers_served = false;
      c.NoteTraining(training);
      c.ShardsLost(1, At(3));
      EXPECT_EQ(c.ordered().number, 0u);
      EXPECT_EQ(c.holds_phase(), !begun);
      training.pservers_served = true;
      c.NoteTraining(training);
      c.Plan(At(20));
      // The next epoch has other values, the job's end has not.
      EXPECT_EQ(c.ordered().number, begun && !last ? 0u : 2u);
      EXPECT_EQ(c.finishes_job(), last);
    }
  }
}

TEST_F(TaskCheckpointsTest, AnEpochThatCouldHaveBeenTheLastIsNotCutAgainInTheNextOne) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 0, 1);
  c.EpochEnds(End(0, 10, /*last=*/true, Mode::kAsync), At(1));
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
  EXPECT_TRUE(c.finishes_job());
  c.EpochBegins(At(3));
  EXPECT_FALSE(c.finishes_job());
  c.ShardsLost(1, At(3));
  c.Plan(At(20));
  EXPECT_EQ(c.ordered().number, 0u);
}

TEST_F(TaskCheckpointsTest, ACheckpointOfAnEndIsGivenUpWhenTheNextEpochBegins) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 0, 1);
  c.EpochEnds(End(0, 10, /*last=*/true, Mode::kAsync), At(1));
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
  c.ShardsLost(1, At(3));
  c.Plan(At(20));
  ASSERT_EQ(c.ordered().number, 2u) << "it may be the job's end, so it is tried again";
  c.EpochBegins(At(21));  // the evaluation has not stopped training
  EXPECT_NE(c.OutcomeOf(2), nullptr) << "its cuts would lie in this epoch";
}

TEST_F(TaskCheckpointsTest, ACheckpointOfTheSameStepGetsTheNextNumber) {
  for (const Mode mode : {Mode::kAsync, Mode::kGeo}) {
    JobCheckpoints c = MakeTraining(mode, 0, 10);
    Manifest manifest;
    manifest.set_global_step(208);
    *manifest.mutable_checkpoint() = StateWithWorkers(208);
    c.SetNewest(manifest, absl::Seconds(1), At(0));
    c.NoteStep(208, At(1));
    c.Plan(At(10));
    EXPECT_EQ(c.open_step(), 209u);
  }
}

TEST_F(TaskCheckpointsTest, ACheckpointDueAtTheEndOfAnEpochFollowsTheOneThatIsOpen) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 10, 2);
    c.NoteStep(10, At(10));
    c.Plan(At(10));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(11));
    for (const uint32_t i : {0, 1})
      c.TakeHosted(i,
                   Cut(HostedCut::WRITING, 1, 10, PositionHeldBy(1, 1, 1), PositionHeldBy(1, 1, 1)),
                   At(11));
    EXPECT_FALSE(c.holds_phase());
    c.EpochEnds(End(1, 20, last, Mode::kAsync), At(12));
    EXPECT_TRUE(c.holds_phase());
    c.GiveUp("the disk is full", At(13));
    EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 20}));
    EXPECT_TRUE(c.holds_phase());
    EXPECT_EQ(c.finishes_job(), last);
    c.GiveUp("the disk is full", At(14));
    EXPECT_EQ(c.ordered().number, 0u);
    // Files of the one before may have disturbed that of the job's end, so it is tried once more.
    EXPECT_EQ(c.holds_phase(), last);
    c.Plan(At(23));
    EXPECT_EQ(c.ordered().number, last ? 3u : 0u);
    c.GiveUp("the disk is full", At(24));
    EXPECT_FALSE(c.holds_phase());
    EXPECT_FALSE(c.finishes_job());
  }
}

TEST_F(TaskCheckpointsTest, SilenceEndsTheHoldAndCountsAsAFailure) {
  for (const bool answered : {false, true}) {
    JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 10);
    c.Plan(At(10));
    c.TakeWorker(Parked(1, 1), At(11));
    if (answered) c.TakeWorker(Parked(0, 1), At(12));
    EXPECT_EQ(c.progressed_at(), At(answered ? 12 : 11));
    c.GiveUpWaiting(absl::Seconds(30), At(42));
    EXPECT_FALSE(c.holds_phase());
    EXPECT_EQ(c.asked().number, 0u);
    EXPECT_EQ(c.ordered().number, 0u);
    EXPECT_EQ(c.over(), 1u);
    EXPECT_EQ(c.status().failed(), 1u);
    EXPECT_THAT(c.OutcomeOf(1)->error, HasSubstr(answered ? "pserver 0, pserver 1" : "rank 0"));
    EXPECT_EQ(c.TakeDiscards(At(42)).size(), 1u);
    // The next one is due after the interval.
    c.Plan(At(51));
    EXPECT_EQ(c.asked().number, 0u);
    c.Plan(At(52));
    EXPECT_EQ(c.asked().number, 2u);
  }
}

TEST_F(TaskCheckpointsTest, ARankLostBeforeAllCutsHaveBegunEndsTheCheckpoint) {
  for (const Mode mode : {Mode::kAsync, Mode::kGeo}) {
    for (int reports = 0; reports < 4; ++reports) {
      SCOPED_TRACE(reports);
      JobCheckpoints c = MakeTraining(mode, 0, 10);
      c.Plan(At(10));
      ASSERT_EQ(c.asked().number, 1u);
      if (reports > 0) c.TakeWorker(Parked(1, 1), At(11));
      if (reports > 1) c.TakeWorker(Parked(0, 1), At(11));
      if (reports > 2)
        c.TakeHosted(
            0, Cut(HostedCut::WRITING, 1, 1, PositionHeldBy(2, 1, 5), PositionHeldBy(3, 2, 5)),
            At(12));
      EXPECT_TRUE(c.holds_phase());
      c.NoteTraining(Training(false));
      c.RankLost(1, At(13));
      EXPECT_FALSE(c.holds_phase());
      EXPECT_EQ(c.over(), 1u);
      EXPECT_EQ(c.asked().number, 0u);
      EXPECT_EQ(c.ordered().number, 0u);
      EXPECT_EQ(c.status().failed(), 1u);
      EXPECT_THAT(c.OutcomeOf(1)->error, HasSubstr("rank 1"));
      c.RankLost(1, At(14));
      EXPECT_EQ(c.over(), 1u);
      // The epoch may end meanwhile; the next one waits until the rank trains again.
      c.EpochEnds(End(0, 1, true, mode), At(15));
      c.Plan(At(40));
      EXPECT_EQ(c.asked().number, 0u);
      EXPECT_FALSE(c.holds_phase());
      c.NoteTraining(Training(true));
      c.Plan(At(41));
      EXPECT_EQ(c.asked().number, 2u);
    }
  }
}

TEST_F(TaskCheckpointsTest, ALossDoesNotRestartTheInterval) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync, Mode::kGeo}) {
    for (const bool of_pserver : {false, true}) {
      if (mode == Mode::kSync && of_pserver) continue;  // the job rolls back
      JobCheckpoints c = MakeTraining(mode, 0, 100);
      c.Plan(At(100));
      ASSERT_EQ(c.asked().number, 1u);
      c.TakeWorker(Parked(0, 1), At(101));
      ASSERT_TRUE(c.open());
      if (of_pserver) {
        c.ShardsLost(1, At(102));
      } else {
        c.RankLost(1, At(102));
      }
      EXPECT_EQ(c.status().failed(), 1u);
      c.Plan(At(111));
      EXPECT_EQ(c.asked().number, 0u) << "pservers may still write the one before";
      c.Plan(At(112));
      EXPECT_EQ(c.asked().number, 2u);
    }
  }
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, /*every_s=*/2);
  c.Plan(At(2));
  c.RankLost(1, At(3));
  c.Plan(At(4));
  EXPECT_EQ(c.asked().number, 0u);
  c.Plan(At(5));
  EXPECT_EQ(c.asked().number, 2u) << "a short interval is not made longer";
}

TEST_F(TaskCheckpointsTest, AnAsyncCheckpointWhoseCutsHaveBegunNeedsNoRankAnyMore) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 10);
  c.Plan(At(10));
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(11));
  for (const auto state : {HostedCut::WRITING, HostedCut::WRITTEN}) {
    for (const uint32_t i : {0, 1})
      c.TakeHosted(i, Cut(state, 1, 1, PositionHeldBy(2, 1, 5), PositionHeldBy(3, 2, 5)), At(12));
    if (c.needs_state()) c.SetState(StateWithWorkers(1), At(12));
    c.RankLost(1, At(13));
    EXPECT_EQ(c.over(), 0u);
  }
  EXPECT_TRUE(c.TakeCommit());
}

TEST_F(TaskCheckpointsTest, AnInterruptedJobAsksAgainWhenItTrainsAgain) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 10);
  c.NoteStep(12, At(1));
  c.Plan(At(1));
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(2));
  EXPECT_EQ(c.ordered().number, 1u);
  c.Interrupt(At(3));
  EXPECT_EQ(c.asked().number, 0u);
  EXPECT_EQ(c.ordered().number, 0u);
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.status().failed(), 0u);
  EXPECT_FALSE(c.holds_phase());
  c.Demand(At(4));
  c.NoteTraining(Training(true));
  c.Plan(At(4));
  EXPECT_EQ(c.asked().number, 0u) << "there is no run";
  c.Restart({/*instance=*/9, /*first_step=*/0, /*worker_num=*/2, /*pserver_num=*/2}, At(5));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteTraining(Training(true));
  c.NoteStep(1, At(6));
  c.Plan(At(6));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0, false, false, 1})) << "as demanded";
  c.GiveUp("no room", At(7));
  c.NoteStep(10, At(8));  // the lost run was beyond that
  c.Plan(At(8));
  EXPECT_EQ(c.asked().number, 3u);
}

class GeoCheckpointsTest : public TaskCheckpointsTest {
 protected:
  // A checkpoint whose cuts have begun.
  static JobCheckpoints MakeBegun() {
    JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 10);
    c.NoteStep(6, At(1));
    c.Plan(At(10));
    EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0, true, false, 6, true}));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Parked(rank, 1), At(11));
    EXPECT_FALSE(c.asked().released);
    for (const uint32_t i : {0, 1})
      c.TakeHosted(i,
                   Cut(HostedCut::WRITTEN, 1, 6, PositionHeldBy(2, 1, 5), PositionHeldBy(3, 2, 5)),
                   At(12));
    return c;
  }
};

TEST_F(GeoCheckpointsTest, RanksAreReleasedWhenAllCutsHaveBegunAndConfirmIt) {
  JobCheckpoints c = MakeBegun();
  EXPECT_TRUE(c.asked().released);
  ASSERT_TRUE(c.needs_state());
  ASSERT_TRUE(c.Parts().ok()) << c.Parts().status();
  c.SetState(StateWithWorkers(6), At(12));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeWorker(Parked(0, 1, /*parked=*/false), At(13));
  c.TakeWorker(Parked(0, 1), At(13));  // an older report, overtaken
  EXPECT_FALSE(c.TakeCommit());
  c.TakeWorker(Parked(1, 1, /*parked=*/false), At(14));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  ASSERT_EQ(manifest->files_size(), 4);
  std::vector<std::string> names;
  for (const SavedFile& file : manifest->files()) names.push_back(file.name());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("of-1.shard", "of-1.shard", "worker-0.0123456789abcdef",
                                            "worker-1.0123456789abcdef"));
}

TEST_F(GeoCheckpointsTest, RanksWriteTheirFilesAtTheEndOfAnEpoch) {
  JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 0, 1);
  c.EpochEnds(End(0, 208, false, Mode::kGeo), At(1));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0, true, false, 208, true}));
  EXPECT_TRUE(c.holds_phase());
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Parked(rank, 1), At(2));
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 208}));
  // A rank that is lost now is not parked until the cuts have begun, and its next life is not
  // asked.
  c.NoteTraining(Training(false));
  c.RankLost(1, At(3));
  EXPECT_FALSE(c.holds_phase());
}

TEST_F(GeoCheckpointsTest, ARankThatContinuesEarlyVoidsTheCheckpoint) {
  JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 10);
  c.Plan(At(10));
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Parked(rank, 1), At(11));
  c.TakeWorker(Parked(1, 1, /*parked=*/false), At(12));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_THAT(c.OutcomeOf(1)->error, HasSubstr("rank 1"));

  JobCheckpoints begun = MakeBegun();
  begun.SetState(StateWithWorkers(6), At(12));
  WorkerCut late = Parked(1, 1, false);
  late.set_error("waited too long");
  begun.TakeWorker(late, At(13));
  EXPECT_THAT(begun.OutcomeOf(1)->error, HasSubstr("rank 1: waited too long"));
  EXPECT_FALSE(begun.TakeCommit());
}

TEST_F(GeoCheckpointsTest, ARankThatIsLostMustHaveConfirmedItsRelease) {
  for (const bool confirmed : {false, true}) {
    JobCheckpoints c = MakeBegun();
    c.SetState(StateWithWorkers(6), At(12));
    if (confirmed) c.TakeWorker(Parked(1, 1, /*parked=*/false), At(13));
    c.RankLost(1, At(14));
    EXPECT_EQ(c.over(), confirmed ? 0u : 1u);
    c.TakeWorker(Parked(0, 1, /*parked=*/false), At(15));
    EXPECT_EQ(c.TakeCommit().has_value(), confirmed);
  }
}

TEST_F(GeoCheckpointsTest, CutsThatHoldDifferentFramesAreRefused) {
  JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 10);
  c.Plan(At(10));
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Parked(rank, 1), At(11));
  c.TakeHosted(0, Cut(HostedCut::WRITING, 1, 1, PositionHeldBy(2, 1, 5), PositionHeldBy(3, 2, 5)),
               At(12));
  c.TakeHosted(1, Cut(HostedCut::WRITING, 1, 1, PositionHeldBy(2, 1, 5), PositionHeldBy(4, 2, 9)),
               At(12));
  ASSERT_TRUE(c.needs_state());
  EXPECT_EQ(c.Parts().status().code(), absl::StatusCode::kInternal);
  c.SetState(c.Parts().status(), At(12));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_FALSE(c.asked().released);
}

}  // namespace
}  // namespace sluice

#include "scheduler/job/job_checkpoints.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_checkpoints_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(JobCheckpointsTest, RankZeroKnowsTheRuleAndTheNextNumber) {
  JobCheckpoints c = Make(7);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 7}));
  // However far training is, no other message has to arrive in time.
  c.NoteStep(9, At(2));
  c.Plan(At(2));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 7}));
  Complete(&c, 1, 14, At(3), At(4));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 7}));
}

TEST_F(JobCheckpointsTest, ACompleteCheckpointHasAllPartsAndIsCommittedOnce) {
  JobCheckpoints c = Make(7);
  BringMost(&c, 1, 7, At(3));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeWorker(Worker(1, 1, 7), At(4));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_FALSE(c.TakeCommit());
  EXPECT_EQ(manifest->global_step(), 7u);
  EXPECT_EQ(manifest->epochs(), 2u);
  EXPECT_EQ(manifest->files_size(), 2);
  EXPECT_EQ(manifest->checkpoint().epoch(), 2u);
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(1).train().examples(), 20u);
  EXPECT_EQ(c.over(), 0u);
  EXPECT_EQ(c.OutcomeOf(1), nullptr);
  c.Committed(1, absl::OkStatus(), At(5));
  EXPECT_EQ(c.over(), 1u);
  ASSERT_NE(c.OutcomeOf(1), nullptr);
  EXPECT_EQ(c.OutcomeOf(1)->error, "");
  EXPECT_EQ(c.OutcomeOf(1)->dir, "/ckpt/step-7");
  const CheckpointStatus status = c.status();
  EXPECT_EQ(status.step(), 7u);
  EXPECT_EQ(status.bytes(), 200u);
  EXPECT_EQ(status.made(), 1u);
  EXPECT_EQ(status.seconds(), 2);
  EXPECT_EQ(status.age_s(), 2);
  EXPECT_EQ(status.doing(), "");
  EXPECT_THAT(c.TakeDiscards(At(100)), IsEmpty());
}

TEST_F(JobCheckpointsTest, TheEndOfAnEpochIsCutByOrderWhileThePhaseWaits) {
  JobCheckpoints c = Make(0, 0, 1);
  EXPECT_EQ(c.asked().number, 0u) << "no rank has to name it";
  c.EpochEnds(End(0, 10), At(1));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 10})) << "the ranks have reported their parts";
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
  EXPECT_FALSE(c.holds_phase()) << "its cuts have begun";
  EXPECT_FALSE(c.needs_state());
  // The next epoch is trained meanwhile.
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 1, 10), At(3));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->global_step(), 10u);
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(1).train().examples(), 200u);
  c.Committed(1, absl::OkStatus(), At(4));
  EXPECT_FALSE(c.finishes_job());
  // A report of the same end changes nothing.
  c.EpochEnds(End(0, 10), At(5));
  EXPECT_EQ(c.ordered().number, 0u);
}

TEST_F(JobCheckpointsTest, TheEndOfAnEpochWaitsForTheCheckpointBefore) {
  for (const bool fails : {false, true}) {
    JobCheckpoints c = Make(7, 0, 1);
    BringMost(&c, 1, 7, At(1));
    c.EpochEnds(End(0, 10), At(2));
    EXPECT_TRUE(c.holds_phase());
    EXPECT_EQ(c.ordered().number, 0u);
    if (fails) {
      c.GiveUpWaiting(absl::Seconds(30), At(40));
    } else {
      c.TakeWorker(Worker(1, 1, 7), At(3));
      ASSERT_TRUE(c.TakeCommit());
      c.Committed(1, absl::OkStatus(), At(40));
    }
    EXPECT_TRUE(c.holds_phase());
    EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 10}));
  }
}

TEST_F(JobCheckpointsTest, TheEndOfAnEpochWaitsForTheEndOfTheOneBefore) {
  for (const bool fails : {false, true}) {
    JobCheckpoints c = Make(0, 0, 1);
    c.EpochEnds(End(0, 10), At(1));
    for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
    c.EpochBegins(At(2));
    c.EpochEnds(End(1, 20), At(3));
    EXPECT_TRUE(c.holds_phase());
    if (fails) {
      c.GiveUpWaiting(absl::Seconds(30), At(40));
    } else {
      for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 1, 10), At(4));
      ASSERT_TRUE(c.TakeCommit());
      c.Committed(1, absl::OkStatus(), At(40));
    }
    EXPECT_TRUE(c.holds_phase());
    EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 20}));
  }
}

TEST_F(JobCheckpointsTest, ACommitThatNamedACheckpointIsKnownWhenTheEpochEnds) {
  // The reports of the pservers and of other ranks are still under way.
  JobCheckpoints c = Make(7, 0, 1);
  c.NoteNamed(1, 7, At(1));
  EXPECT_EQ(c.open_step(), 7u);
  c.EpochEnds(End(0, 10), At(1));
  EXPECT_EQ(c.ordered().number, 0u) << "number 1 is used";
  BringMost(&c, 1, 7, At(2));
  c.TakeWorker(Worker(1, 1, 7), At(2));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(1, absl::OkStatus(), At(3));
  EXPECT_EQ(c.status().step(), 7u);
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 10}));
  // Rank 0 has named none.
  JobCheckpoints none = Make(7);
  none.NoteNamed(0, 0, At(1));
  EXPECT_EQ(none.open_step(), 0u);
}

TEST_F(JobCheckpointsTest, AMultipleAtTheEndOfAnEpochIsItsCheckpoint) {
  JobCheckpoints c = Make(10, 0, 1);
  c.NoteNamed(1, 10, At(1));
  c.EpochEnds(End(0, 10, /*last=*/true), At(1));
  EXPECT_FALSE(c.holds_phase());
  EXPECT_TRUE(c.finishes_job());
  BringMost(&c, 1, 10, At(2));
  c.TakeWorker(Worker(1, 1, 10), At(2));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(1, absl::OkStatus(), At(3));
  EXPECT_EQ(c.status().made(), 1u);
  EXPECT_FALSE(c.finishes_job());
}

TEST_F(JobCheckpointsTest, AnEndWhoseNamedCheckpointFailsGetsOneByOrder) {
  JobCheckpoints c = Make(10, 0, 1);
  c.NoteNamed(1, 10, At(1));
  c.EpochEnds(End(0, 10, /*last=*/true), At(1));
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 1, 10), At(2));
  EXPECT_TRUE(c.finishes_job());
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 10}));
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 2, 10), At(3));
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 2, 10), At(4));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(2, absl::OkStatus(), At(5));
  EXPECT_EQ(c.status().made(), 1u);
  EXPECT_FALSE(c.finishes_job());
  // Only until the next epoch begins, whose steps change the values.
  JobCheckpoints late = Make(10, 0, 1);
  late.NoteNamed(1, 10, At(1));
  late.EpochEnds(End(0, 10), At(1));
  late.EpochBegins(At(2));
  late.TakeHosted(0, Hosted(HostedCut::FAILED, 1, 10), At(3));
  EXPECT_EQ(late.ordered().number, 0u);
}

TEST_F(JobCheckpointsTest, AnEndIsSavedAgainAfterARollbackToAnOlderCheckpoint) {
  for (const uint64_t first_step : {0, 7, 10}) {
    JobCheckpoints c = Make(0, 0, 1);
    c.EpochEnds(End(0, 10), At(1));
    for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
    for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 1, 10), At(3));
    ASSERT_TRUE(c.TakeCommit());
    c.Committed(1, absl::OkStatus(), At(4));
    c.Interrupt(At(5));
    JobCheckpoints::NextRun run;
    run.instance = 2;
    run.first_step = first_step;
    run.worker_num = run.pserver_num = 2;
    c.Restart(run, At(6));
    c.EpochEnds(End(0, 10), At(7));
    // A run that begins at that end has it already.
    EXPECT_EQ(c.ordered().number, first_step < 10 ? 2u : 0u) << first_step;
  }
}

TEST_F(JobCheckpointsTest, ALateCommitWithTheNumberOfAnEndChangesNothing) {
  JobCheckpoints c = Make(7, 0, 1);
  c.EpochEnds(End(0, 10), At(1));
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 1, 10), At(2));
  // Rank 0 had not heard yet that number 1 is used.
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 14), At(3));
  EXPECT_EQ(c.over(), 0u);
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 1, 10), At(4));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->checkpoint().workers(0).train().examples(), 100u);
}

TEST_F(JobCheckpointsTest, ALostRankDoesNotEndTheCheckpointOfAnEpochsEnd) {
  JobCheckpoints c = Make(0, 0, 1);
  c.EpochEnds(End(0, 10), At(1));
  c.RankLost(1, At(2));
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 10}));
}

TEST_F(JobCheckpointsTest, OneRankWritesTheTablesThatTheRanksKeep) {
  JobCheckpoints c = Make(0, 0, 1);
  JobCheckpoints::Training training;
  training.ranks_keep_tables = true;
  training.tables_from = 1;
  c.NoteTraining(training);
  c.EpochEnds(End(0, 10), At(1));
  EXPECT_EQ(c.asked().number, 1u);
  EXPECT_TRUE(c.asked().by_order);
  EXPECT_EQ(c.asked().at_step, 10u);
  EXPECT_EQ(c.asked().only, 1u);
  EXPECT_EQ(c.ordered().number, 0u);
  // It is lost: another one writes them.
  training.tables_from = 0;
  c.NoteTraining(training);
  c.RankLost(1, At(2));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_EQ(c.asked().number, 2u);
  EXPECT_EQ(c.asked().only, 0u);
  c.TakeWorker(Worker(0, 2, 10), At(3));
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{2, 10}));
  // Nobody has them: the phase does not wait.
  training.tables_from.reset();
  c.NoteTraining(training);
  JobCheckpoints none = Make(0, 0, 1);
  none.NoteTraining(training);
  none.EpochEnds(End(0, 10), At(1));
  EXPECT_FALSE(none.holds_phase());
}

TEST_F(JobCheckpointsTest, TheJobsEndIsDueUnlessTheNewestIsOfIt) {
  for (const bool at_end : {false, true}) {
    JobCheckpoints c = Make(0, 0, 0, 0, at_end);
    c.EpochEnds(End(0, 10), At(1));
    EXPECT_FALSE(c.holds_phase());
    c.EpochEnds(End(1, 20, /*last=*/true), At(2));
    EXPECT_EQ(c.holds_phase(), at_end);
    EXPECT_EQ(c.finishes_job(), at_end);
  }
  // The job has resumed from a checkpoint of its end.
  JobCheckpoints resumed = Make(0, 0, 0, 20, /*at_end=*/true);
  Manifest manifest;
  manifest.set_global_step(20);
  *manifest.mutable_checkpoint() = End(1, 20).state;
  resumed.SetNewest(manifest, absl::Seconds(1), At(0));
  resumed.EpochEnds(End(1, 20, /*last=*/true), At(1));
  EXPECT_FALSE(resumed.holds_phase());
}

TEST_F(JobCheckpointsTest, TimeCountsFromTheEndOfTheOneBefore) {
  JobCheckpoints c = Make(0, 60);
  c.Plan(At(59));
  EXPECT_EQ(c.asked().number, 0u);
  c.Plan(At(60));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0}));
  Complete(&c, 1, 5, At(61), At(80));
  c.Plan(At(139));
  EXPECT_EQ(c.asked().number, 0u);
  c.Plan(At(140));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0}));
}

TEST_F(JobCheckpointsTest, ADemandIsMetByTheNextStep) {
  JobCheckpoints c = Make(50);
  EXPECT_EQ(c.Demand(At(1)), 1u);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0}));
  EXPECT_EQ(c.Demand(At(1)), 1u);
  BringMost(&c, 1, 3, At(2));
  // The open one lacks the steps since it began.
  EXPECT_EQ(c.Demand(At(3)), 2u);
  c.TakeWorker(Worker(1, 1, 3), At(3));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(1, absl::OkStatus(), At(3));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0}));
}

TEST_F(JobCheckpointsTest, AFailureIsCountedAndTheNextTryHasTheNextNumber) {
  JobCheckpoints c = Make(10);
  c.TakeHosted(1, Hosted(HostedCut::WRITING, 1, 10), At(1));
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 1, 0), At(2));  // it does not know the step
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 10}));
  EXPECT_THAT(c.OutcomeOf(1)->error, HasSubstr("pserver 0: no space left"));
  EXPECT_EQ(c.status().failed(), 1u);
  EXPECT_THAT(c.status().last_error(), HasSubstr("no space left"));
  EXPECT_THAT(c.TakeWarning(), HasSubstr("no space left"));
  // A series of failures is warned of once.
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 2, 20), At(3));
  EXPECT_EQ(c.status().failed(), 2u);
  EXPECT_EQ(c.TakeWarning(), "");
  Complete(&c, 3, 30, At(4), At(5));
  EXPECT_EQ(c.status().failed(), 2u);
  EXPECT_EQ(c.status().last_error(), "");
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 4, 40), At(6));
  EXPECT_NE(c.TakeWarning(), "");
}

TEST_F(JobCheckpointsTest, UntilTheFirstOneTheAgeIsThatOfTheJob) {
  for (const bool due : {false, true}) {
    JobCheckpoints c = Make(0, /*every_s=*/due ? 60 : 0);
    c.Plan(At(90));
    EXPECT_EQ(c.status().age_s(), due ? 90 : 0);
  }
  CheckpointStatus before;
  before.set_made(2);
  before.set_failed(3);
  before.set_age_s(100);
  JobCheckpoints c = Make(0, /*every_s=*/60);
  c.Continue(before, At(0));
  c.Plan(At(5));
  EXPECT_EQ(c.status().age_s(), 105);
  EXPECT_EQ(c.status().made(), 2u);
  EXPECT_EQ(c.status().failed(), 3u);
  Complete(&c, 1, 7, At(10), At(12));
  EXPECT_EQ(c.status().age_s(), 2);
  EXPECT_EQ(c.status().made(), 3u);
  c.End(At(20));
  EXPECT_EQ(c.status().age_s(), 10);
}

TEST_F(JobCheckpointsTest, FilesOfAFailureAreRemovedAtOnceAndWhenWritersHaveStopped) {
  JobCheckpoints c = Make(10);
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 1, 10), At(2));
  const auto first = c.TakeDiscards(At(2));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].number, 1u);
  EXPECT_EQ(first[0].step, 10u);
  EXPECT_THAT(c.TakeDiscards(At(3)), IsEmpty());
  EXPECT_EQ(c.TakeDiscards(At(30)).size(), 1u);
  EXPECT_THAT(c.TakeDiscards(At(60)), IsEmpty());
}

TEST_F(JobCheckpointsTest, AFailedManifestIsAFailure) {
  JobCheckpoints c = Make(10);
  BringMost(&c, 1, 10, At(1));
  c.TakeWorker(Worker(1, 1, 10), At(1));
  ASSERT_TRUE(c.TakeCommit());
  EXPECT_EQ(c.progressed_at(), absl::InfiniteFuture());
  c.Committed(1, absl::DataLossError("a file is missing"), At(2));
  EXPECT_EQ(c.status().made(), 0u);
  EXPECT_EQ(c.status().failed(), 1u);
  EXPECT_THAT(c.TakeWarning(), HasSubstr("a file is missing"));
  EXPECT_EQ(c.TakeDiscards(At(2)).size(), 1u);
}

TEST_F(JobCheckpointsTest, PartsOfDifferentStepsAreNoCheckpoint) {
  JobCheckpoints c = Make(10);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10), At(1));
  c.TakeWorker(Worker(1, 1, 11), At(2));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_THAT(c.OutcomeOf(1)->error, testing::AllOf(HasSubstr("rank 1"), HasSubstr("11")));
}

TEST_F(JobCheckpointsTest, AStateThatIsNotKnownIsAFailure) {
  JobCheckpoints c = Make(10);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10), At(1));
  c.SetState(absl::FailedPreconditionError("too late"), At(1));
  EXPECT_THAT(c.OutcomeOf(1)->error, HasSubstr("too late"));
}

TEST_F(JobCheckpointsTest, OnlyGrowingBytesAreProgress) {
  JobCheckpoints c = Make(10);
  EXPECT_EQ(c.progressed_at(), absl::InfiniteFuture());
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10, 5), At(1));
  EXPECT_EQ(c.progressed_at(), At(1));
  EXPECT_THAT(c.status().doing(), HasSubstr("step 10"));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10, 5), At(2));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10, 4), At(2));  // overtaken by the one before
  EXPECT_EQ(c.progressed_at(), At(1));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10, 6), At(3));
  EXPECT_EQ(c.progressed_at(), At(3));
  c.TakeHosted(0, Hosted(HostedCut::WRITTEN, 1, 10, 6), At(4));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10, 7), At(5));
  c.GiveUpWaiting(absl::Seconds(120), At(124));
  EXPECT_THAT(c.OutcomeOf(1)->error, testing::AllOf(HasSubstr("pserver 1, rank 0, rank 1"),
                                                    testing::Not(HasSubstr("pserver 0"))));
}

TEST_F(JobCheckpointsTest, ReportsOfNumbersThatAreOverOrUnknownChangeNothing) {
  JobCheckpoints c = Make(10);
  Complete(&c, 1, 10, At(1), At(2));
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 1, 10), At(3));
  c.TakeWorker(Worker(0, 1, 10), At(3));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 9, 10), At(3));
  c.TakeHosted(7, Hosted(HostedCut::WRITING, 2, 20), At(3));
  c.TakeWorker(Worker(7, 2, 20), At(3));
  c.Committed(2, absl::OkStatus(), At(3));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.status().failed(), 0u);
  EXPECT_EQ(c.progressed_at(), absl::InfiniteFuture());
}

TEST_F(JobCheckpointsTest, ALostRankFailsTheCheckpointThatLacksItsPart) {
  JobCheckpoints c = Make(7);
  BringMost(&c, 1, 7, At(1));
  c.RankLost(0, At(2));
  EXPECT_EQ(c.over(), 0u) << "its part is in";
  c.RankLost(1, At(2));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.status().failed(), 1u);
  EXPECT_EQ(c.asked().number, 2u);
}

TEST_F(JobCheckpointsTest, ALostRankEndsACheckpointThatMayHaveBegunSomewhere) {
  JobCheckpoints c = Make(0);
  const uint64_t number = c.Demand(At(1));
  c.RankLost(1, At(2));
  EXPECT_EQ(c.over(), number);
  EXPECT_EQ(c.status().failed(), 0u);
  EXPECT_EQ(c.asked().number, number + 1) << "it was demanded";
  EXPECT_EQ(c.Followed(number), number + 1);
  c.RankLost(1, At(3));
  EXPECT_EQ(c.Followed(number), number + 2);
  // Its parts are of no interest any more.
  c.TakeHosted(0, Hosted(HostedCut::WRITTEN, number, 5), At(4));
  EXPECT_EQ(c.open_step(), 0u);
}

TEST_F(JobCheckpointsTest, NothingIsAskedAfterTheLastEpoch) {
  JobCheckpoints c = Make(7, 60);
  EXPECT_TRUE(c.can_begin());
  JobCheckpoints::Training training;
  training.more = false;
  c.NoteTraining(training);
  c.Plan(At(70));
  EXPECT_FALSE(c.can_begin());
  EXPECT_EQ(c.asked().number, 0u);
}

TEST_F(JobCheckpointsTest, TheJobWaitsOnlyForTheCheckpointOfItsEnd) {
  JobCheckpoints c = Make(0, 0, 1);
  EXPECT_FALSE(c.finishes_job());
  c.EpochEnds(End(0, 10), At(1));
  EXPECT_FALSE(c.finishes_job());
  c.GiveUpWaiting(absl::Seconds(1), At(2));
  EXPECT_FALSE(c.holds_phase()) << "it was tried";
  c.EpochEnds(End(1, 20, /*last=*/true), At(33));
  EXPECT_TRUE(c.finishes_job());
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITING, 2, 20), At(34));
  EXPECT_FALSE(c.holds_phase());
  EXPECT_TRUE(c.finishes_job());
  c.GiveUpWaiting(absl::Seconds(1), At(35));
  EXPECT_FALSE(c.finishes_job());
}

TEST_F(JobCheckpointsTest, TheEndGivesUpWhatIsOpenWithoutAFailure) {
  JobCheckpoints c = Make(10);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10), At(1));
  c.End(At(2));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.asked().number, 0u);
  EXPECT_EQ(c.status().failed(), 0u);
  EXPECT_EQ(c.TakeWarning(), "");
  EXPECT_NE(c.OutcomeOf(1)->error, "");
  EXPECT_EQ(c.TakeDiscards(At(2)).size(), 2u);  // nobody comes back for the second one
}

TEST_F(JobCheckpointsTest, AManifestThatIsBeingWrittenOutlivesTheJob) {
  JobCheckpoints c = Make(10);
  BringMost(&c, 1, 10, At(1));
  c.TakeWorker(Worker(1, 1, 10), At(1));
  ASSERT_TRUE(c.TakeCommit());
  c.End(At(2));
  EXPECT_EQ(c.over(), 0u);
  c.Committed(1, absl::OkStatus(), At(3));
  EXPECT_EQ(c.status().made(), 1u);
  EXPECT_EQ(c.asked().number, 0u);
}

TEST_F(JobCheckpointsTest, NamesThatNoMemberGivesToItsFilesEndTheCheckpoint) {
  const auto of_pserver = [](const std::string& name) {
    HostedCut cut = Hosted(HostedCut::WRITTEN, 1, 10);
    cut.add_files()->set_name(name);
    return cut;
  };
  for (const std::string name : {"../../secret-0.shard", "/etc/passwd", "MANIFEST", ""}) {
    SCOPED_TRACE(name);
    WorkerCut own = Worker(0, 1, 10), dense = own;
    own.mutable_state()->mutable_file()->set_name(name);
    dense.mutable_state()->add_dense_files()->set_name(name);
    JobCheckpoints of_rank = Make(10), of_dense = Make(10), of_shards = Make(10);
    of_rank.TakeWorker(own, At(1));
    of_dense.TakeWorker(dense, At(1));
    of_shards.TakeHosted(1, of_pserver(name), At(1));
    for (JobCheckpoints* c : {&of_rank, &of_dense, &of_shards}) {
      EXPECT_EQ(c->status().failed(), 1u);
      EXPECT_EQ(c->over(), 1u);
    }
    EXPECT_THAT(of_shards.OutcomeOf(1)->error, testing::HasSubstr("pserver 1"));
  }
  // A rank names its own file alone.
  for (const uint32_t rank : {0, 1}) {
    JobCheckpoints c = Make(10);
    WorkerCut cut = Worker(0, 1, 10);
    cut.mutable_state()->mutable_file()->set_name(WorkerFileName(rank, "0123456789abcdef"));
    c.TakeWorker(cut, At(1));
    EXPECT_EQ(c.status().failed(), rank);
  }
}

TEST_F(JobCheckpointsTest, AResumedJobContinuesFromItsStep) {
  JobCheckpoints c = Make(10, 0, 0, 34);
  Manifest manifest;
  manifest.set_global_step(34);
  manifest.add_files()->set_bytes(9);
  c.SetNewest(manifest, absl::Seconds(100), At(0));
  c.Plan(At(5));
  EXPECT_EQ(c.status().step(), 34u);
  EXPECT_EQ(c.status().age_s(), 105);
  EXPECT_EQ(c.status().bytes(), 9u);
  EXPECT_EQ(c.status().dir(), "/ckpt/step-34");
  EXPECT_EQ(c.status().made(), 0u);
}

TEST_F(JobCheckpointsTest, DemandedCheckpointIsRetriedOnceWhileOldFilesAreWritten) {
  JobCheckpoints c = Make(0);
  EXPECT_EQ(c.Demand(At(0)), 1u);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 7), At(1));
  c.GiveUp("no progress", At(5));
  EXPECT_EQ(c.Followed(1), 1u) << "it met no other one";
  EXPECT_EQ(c.Demand(At(6)), 2u);
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 2, 9), At(7));
  EXPECT_EQ(c.over(), 2u);
  EXPECT_EQ(c.Followed(2), 3u);
  EXPECT_EQ(c.OutcomeOf(3), nullptr);
  c.Plan(At(14));
  EXPECT_EQ(c.asked().number, 0u) << "pservers may still be writing";
  c.Plan(At(15));
  EXPECT_EQ(c.asked().number, 3u);
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 3, 11), At(16));
  EXPECT_EQ(c.Followed(2), 3u) << "only once";
  c.Plan(At(100));
  EXPECT_EQ(c.asked().number, 0u);
}

TEST_F(JobCheckpointsTest, TheIntervalContinuesFromACheckpointOfThisJob) {
  for (const auto maker : {JobCheckpoints::Maker::kOtherJob, JobCheckpoints::Maker::kThisJob}) {
    JobCheckpoints c = Make(0, /*every_s=*/60);
    Manifest manifest;
    manifest.set_global_step(34);
    c.SetNewest(manifest, absl::Seconds(50), At(0), maker);
    c.Plan(At(9));
    EXPECT_EQ(c.asked().number, 0u);
    c.Plan(At(10));
    EXPECT_EQ(c.asked().number, maker == JobCheckpoints::Maker::kThisJob ? 1u : 0u);
  }
}

TEST_F(JobCheckpointsTest, ACheckpointAheadOfThisClockDoesNotDelayTheNextOne) {
  JobCheckpoints c = Make(0, /*every_s=*/60);
  Manifest manifest;
  manifest.set_global_step(34);
  c.SetNewest(manifest, absl::Hours(-24), At(0), JobCheckpoints::Maker::kThisJob);
  c.Plan(At(59));
  EXPECT_EQ(c.asked().number, 0u);
  EXPECT_EQ(c.status().age_s(), 59);
  c.Plan(At(60));
  EXPECT_EQ(c.asked().number, 1u);
}

TEST_F(JobCheckpointsTest, AJobThatLosesMembersMoreOftenThanTheIntervalMakesCheckpoints) {
  JobCheckpoints c = Make(0, /*every_s=*/60);
  for (int loss = 1; loss <= 3; ++loss) {
    c.Plan(At(20 * loss - 1));
    EXPECT_EQ(c.asked().number, 0u) << loss;
    c.Interrupt(At(20 * loss));
    c.Restart({}, At(20 * loss));
  }
  EXPECT_EQ(c.asked().number, 1u);
  // The one that was interrupted is not over: the next attempt makes it.
  c.TakeWorker(Worker(0, 1, 7), At(61));
  ASSERT_TRUE(c.open());
  c.Interrupt(At(62));
  c.Restart({}, At(63));
  EXPECT_EQ(c.asked().number, 2u);
}

TEST_F(JobCheckpointsTest, OnlyACheckpointOfThePresentRunIsOneOfItsInstance) {
  using Maker = JobCheckpoints::Maker;
  for (const Maker maker : {Maker::kOtherJob, Maker::kThisJob, Maker::kThisRun}) {
    JobCheckpoints::Options options;
    options.instance = 77;
    JobCheckpoints c(options, kStart);
    Manifest manifest;
    manifest.set_global_step(34);
    c.SetNewest(manifest, absl::Seconds(100), At(0), maker);
    EXPECT_EQ(c.newest_manifest() != nullptr, maker != Maker::kOtherJob);
    EXPECT_EQ(c.newest_instance(), maker == Maker::kThisRun ? 77u : 0u);
  }
}

TEST_F(JobCheckpointsTest, PserversWithoutShardsMakeNoPart) {
  JobCheckpoints::Options options;
  options.config.set_every_steps(7);
  options.pserver_num = 3;
  options.without_shards = {1};
  JobCheckpoints c(options, kStart);
  c.TakeHosted(0, Hosted(HostedCut::WRITTEN, 1, 7), At(3));
  c.TakeHosted(1, Hosted(HostedCut::FAILED, 1, 7), At(3));
  c.SetState(State(7), At(3));
  c.TakeWorker(Worker(0, 1, 7), At(3));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeHosted(2, Hosted(HostedCut::WRITTEN, 1, 7), At(3));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->files_size(), 2);
  c.Committed(1, absl::OkStatus(), At(4));
  // The next attempt has other pservers.
  c.Interrupt(At(5));
  JobCheckpoints::NextRun next;
  next.pserver_num = 2;
  c.Restart(next, At(6));
  c.TakeHosted(0, Hosted(HostedCut::WRITTEN, 2, 14), At(7));
  c.SetState(State(14), At(7));
  c.TakeWorker(Worker(0, 2, 14), At(7));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeHosted(1, Hosted(HostedCut::WRITTEN, 2, 14), At(7));
  EXPECT_TRUE(c.TakeCommit());
}

// ---------------------------------------------------------------------------- sync, after a loss

TEST_F(JobCheckpointsTest, AfterALossTheOthersAreAskedBeforeThePserversCut) {
  JobCheckpoints c = Make(/*every_steps=*/3);
  EXPECT_EQ(c.asked().number, 1u);
  c.Hold(At(1));
  c.RankLost(1, At(1));
  c.Plan(At(2));
  EXPECT_EQ(c.asked().number, 0u) << "nothing else is asked for";
  WorkerState lost;
  lost.mutable_train()->set_examples(77);
  EXPECT_EQ(c.CutAfterLoss(7, {{1, lost}}, At(3)), 2u);
  EXPECT_EQ(c.asked().number, 2u);
  EXPECT_EQ(c.asked().at_step, 7u);
  EXPECT_TRUE(c.asked().by_order);
  EXPECT_EQ(c.ordered().number, 0u);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 7), At(3));
  EXPECT_FALSE(c.needs_state()) << "no pserver was told to begin";
  c.TakeWorker(Worker(0, 2, 7), At(4));
  EXPECT_EQ(c.ordered().number, 2u);
  EXPECT_EQ(c.ordered().step, 7u);
  for (const uint32_t pserver : {0, 1})
    c.TakeHosted(pserver, Hosted(HostedCut::WRITTEN, 2, 7), At(5));
  ASSERT_TRUE(c.needs_state());
  c.SetState(State(7), At(5));
  const std::optional<Manifest> manifest = c.TakeCommit();
  ASSERT_TRUE(manifest.has_value());
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(1).train().examples(), 77u);
  c.Committed(2, absl::OkStatus(), At(6));
  EXPECT_EQ(c.newest_manifest()->global_step(), 7u);
  c.Plan(At(60));
  EXPECT_EQ(c.asked().number, 0u) << "the next run makes the next one";
  c.Restart({/*instance=*/2, /*first_step=*/7, /*worker_num=*/1, /*pserver_num=*/2, {}}, At(61));
  EXPECT_EQ(c.asked().number, 3u);
}

TEST_F(JobCheckpointsTest, AfterALossAPartOfAnotherStepEndsTheCheckpoint) {
  JobCheckpoints c = Make(/*every_steps=*/0);
  c.Hold(At(1));
  c.CutAfterLoss(7, {{1, WorkerState()}}, At(1));
  c.TakeWorker(Worker(0, 1, 6), At(2));
  ASSERT_NE(c.OutcomeOf(1), nullptr);
  EXPECT_NE(c.OutcomeOf(1)->error, "");
  EXPECT_EQ(c.Followed(1), 1u);
  c.Plan(At(30));
  EXPECT_EQ(c.asked().number, 0u);
}

TEST_F(JobCheckpointsTest, AnotherLossWithdrawsTheCheckpointAfterTheFirstOne) {
  JobCheckpoints c = Make(/*every_steps=*/3);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 3), At(1));
  c.Hold(At(1));
  c.RankLost(1, At(1));
  c.CutAfterLoss(7, {{1, WorkerState()}}, At(1));
  c.RankLost(0, At(2));
  EXPECT_EQ(c.over(), 2u);
  c.Plan(At(30));
  EXPECT_EQ(c.asked().number, 0u) << "nor is it tried again when the writers have stopped";
  EXPECT_EQ(c.CutAfterLoss(6, {{0, WorkerState()}, {1, WorkerState()}}, At(31)), 3u);
  EXPECT_EQ(c.ordered().number, 3u) << "nobody is left to be asked";
  EXPECT_EQ(c.ordered().step, 6u);
}

}  // namespace
}  // namespace sluice

#include "scheduler/job_checkpoints.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr absl::Time kStart = absl::UnixEpoch();

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

HostedCut Hosted(HostedCut::State state, uint64_t number, uint64_t step, uint64_t written = 0) {
  HostedCut cut;
  cut.set_checkpoint(number);
  cut.set_state(state);
  cut.set_step(step);
  cut.set_written_bytes(written);
  if (state == HostedCut::FAILED) cut.set_error("no space left on the device");
  if (state == HostedCut::WRITTEN) {
    SavedFile* file = cut.add_files();
    file->set_name(absl::StrCat("of-", number));
    file->set_bytes(100);
  }
  return cut;
}

WorkerCut Worker(uint32_t rank, uint64_t number, uint64_t step) {
  WorkerCut cut;
  cut.set_rank(rank);
  cut.set_checkpoint(number);
  cut.set_step(step);
  cut.mutable_state()->mutable_train()->set_examples(10 * (rank + 1));
  return cut;
}

CheckpointState State(uint64_t step) {
  CheckpointState state;
  state.set_global_step(step);
  state.set_epoch(2);
  state.mutable_result()->set_epochs(2);
  return state;
}

// Checkpoints of a job with two pservers, two ranks, 10 steps an epoch and 10 epochs.
class JobCheckpointsTest : public testing::Test {
 protected:
  JobCheckpoints Make(uint64_t every_steps, double every_s = 0, uint32_t every_epochs = 0,
                      uint64_t first_step = 0) {
    JobCheckpoints::Options options;
    options.config.set_every_steps(every_steps);
    options.config.set_every_s(every_s);
    options.config.set_every_epochs(every_epochs);
    options.root = "/ckpt";
    options.worker_num = options.pserver_num = 2;
    options.first_step = first_step;
    return JobCheckpoints(options, kStart);
  }
  // All parts of checkpoint `number` but those of the last rank.
  static void BringMost(JobCheckpoints* c, uint64_t number, uint64_t step, absl::Time now) {
    c->TakeHosted(0, Hosted(HostedCut::WRITTEN, number, step), now);
    EXPECT_TRUE(c->needs_state());
    c->SetState(State(step), now);
    c->TakeHosted(1, Hosted(HostedCut::WRITING, number, step), now);
    c->TakeWorker(Worker(0, number, step), now);
    c->TakeHosted(1, Hosted(HostedCut::WRITTEN, number, step), now);
  }
  // Completes checkpoint `number`, whose cut is at `from` and whose end is at `to`.
  static void Complete(JobCheckpoints* c, uint64_t number, uint64_t step, absl::Time from,
                       absl::Time to) {
    BringMost(c, number, step, from);
    c->TakeWorker(Worker(1, number, step), from);
    ASSERT_TRUE(c->TakeCommit().has_value());
    c->Committed(number, absl::OkStatus(), to);
  }
};

TEST_F(JobCheckpointsTest, AStepIsAskedForLongBeforeItIsReached) {
  JobCheckpoints c = Make(7);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 7}));
  c.NoteStep(3, 10, At(1));
  c.Plan(At(1));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 7}));
  // Beyond it the reports are on their way: the request must not move.
  c.NoteStep(9, 10, At(2));
  c.Plan(At(2));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 7}));
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

TEST_F(JobCheckpointsTest, TheNextStepLeavesTimeToAskForIt) {
  JobCheckpoints c = Make(25);
  c.SetSteps(1000, 10000);
  c.NoteStep(90, 1000, At(0.9));  // 100 steps a second
  Complete(&c, 1, 100, At(1), At(1));
  // Rank 0 may do step 125 before it learns of it.
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 150}));
}

TEST_F(JobCheckpointsTest, TheEndOfAnEpochIsNotSkippedWhileNothingIsTrained) {
  JobCheckpoints c = Make(0, 0, 1);
  EXPECT_EQ(c.asked().number, 0u);
  c.SetSteps(10, 100);
  c.Plan(At(0));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 10}));
  c.NoteStep(10, 10, At(1));
  Complete(&c, 1, 10, At(1), At(5));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 20}));
}

TEST_F(JobCheckpointsTest, TheLastStepNeedsNoNotice) {
  JobCheckpoints c = Make(0, 0, 1);
  c.SetSteps(10, 20);
  c.NoteStep(10, 20, At(0.01));  // 1000 steps a second
  Complete(&c, 1, 11, At(0.011), At(0.012));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 20}));
}

TEST_F(JobCheckpointsTest, TheEarlierRuleWins) {
  JobCheckpoints c = Make(25, 0, 2);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 25}));
  c.SetSteps(10, 100);
  c.Plan(At(1));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 20}));
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
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 20}));
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

TEST_F(JobCheckpointsTest, NothingIsAskedAfterTheLastStep) {
  JobCheckpoints c = Make(0, 60);
  c.SetSteps(10, 20);
  c.NoteStep(19, 20, At(50));
  EXPECT_TRUE(c.can_begin());
  c.NoteStep(20, 20, At(55));
  c.Plan(At(70));
  EXPECT_FALSE(c.can_begin());
  EXPECT_EQ(c.asked().number, 0u);
  // A multiple after the last step is not waited for.
  JobCheckpoints steps = Make(50);
  EXPECT_EQ(steps.asked().number, 1u);
  steps.SetSteps(10, 49);
  steps.Plan(At(1));
  EXPECT_EQ(steps.asked().number, 0u);
  JobCheckpoints epochs = Make(0, 0, 3);
  epochs.SetSteps(10, 20);
  epochs.Plan(At(1));
  EXPECT_EQ(epochs.asked().number, 0u);
}

TEST_F(JobCheckpointsTest, TheJobWaitsOnlyForTheCheckpointOfItsLastStep) {
  JobCheckpoints c = Make(10);
  c.SetSteps(10, 20);
  EXPECT_FALSE(c.finishes_job());
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 10), At(1));
  EXPECT_FALSE(c.finishes_job());
  c.GiveUpWaiting(absl::Seconds(1), At(2));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 20), At(3));
  EXPECT_TRUE(c.finishes_job());
  c.GiveUpWaiting(absl::Seconds(1), At(4));
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

TEST_F(JobCheckpointsTest, AResumedJobContinuesFromItsStep) {
  JobCheckpoints c = Make(10, 0, 0, 34);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 40}));
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
  c.Hold();
  c.RankLost(1, At(1));
  c.Plan(At(2));
  EXPECT_EQ(c.asked().number, 0u) << "nothing else is asked for";
  WorkerState lost;
  lost.mutable_train()->set_examples(77);
  EXPECT_EQ(c.CutAfterLoss(7, {{1, lost}}, At(3)), 2u);
  EXPECT_EQ(c.asked().number, 2u);
  EXPECT_EQ(c.asked().at_step, 7u);
  EXPECT_TRUE(c.asked().after_loss);
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
  c.Hold();
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
  c.Hold();
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

// Checkpoints of an async or Geo job with two pservers and two ranks.
// ------------------------------------------------------------------------------- async and Geo

RankPosition Held(uint64_t sequence, uint64_t task, uint64_t end) {
  RankPosition held;
  held.set_incarnation(1);
  held.set_sequence(sequence);
  held.set_task_id(task);
  held.set_task_end(end);
  return held;
}

class TaskCheckpointsTest : public JobCheckpointsTest {
 protected:
  static JobCheckpoints MakeTraining(Mode mode, uint64_t every_steps, double every_s = 0,
                                     uint32_t every_epochs = 0) {
    JobCheckpoints::Options options;
    options.mode = mode;
    options.config.set_every_steps(every_steps);
    options.config.set_every_s(every_s);
    options.config.set_every_epochs(every_epochs);
    options.root = "/ckpt";
    options.worker_num = options.pserver_num = 2;
    JobCheckpoints c(options, kStart);
    c.NoteTraining(/*all_training=*/true, /*more=*/true);
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
    file->set_name(absl::StrCat("worker-", rank));
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

TEST_F(TaskCheckpointsTest, CutsHaveBegunWhenThosePserversWithShardsHaveBegunTheirs) {
  for (const Mode mode : {Mode::kAsync, Mode::kGeo}) {
    JobCheckpoints::Options options;
    options.mode = mode;
    options.pserver_num = 2;
    options.without_shards = {0};
    JobCheckpoints c(options, kStart);
    c.NoteTraining(/*all_training=*/true, /*more=*/true);
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
  c.NoteStep(9, 0, At(1));
  c.Plan(At(1));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteStep(12, 0, At(2));
  c.Plan(At(2));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0, false, false, 12}));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_EQ(c.ordered().number, 0u);
  c.TakeWorker(Worker(0, 1, 4), At(3));
  c.TakeWorker(Worker(0, 1, 5), At(3));  // a repetition
  EXPECT_EQ(c.ordered().number, 0u);
  c.TakeWorker(Worker(1, 1, 6), At(3));
  EXPECT_EQ(c.ordered(), (JobCheckpoints::Ordered{1, 12}));
  c.TakeHosted(0, Cut(HostedCut::WRITING, 1, 12, Held(5, 2, 30), Held(8, 3, 10)), At(4));
  EXPECT_FALSE(c.needs_state());
  EXPECT_TRUE(c.holds_phase());
  c.TakeHosted(1, Cut(HostedCut::WRITTEN, 1, 12, Held(6, 2, 40), Held(7, 3, 5)), At(5));
  EXPECT_FALSE(c.holds_phase());
  ASSERT_TRUE(c.needs_state());
  const auto parts = c.Parts();
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[0].held.task_end(), 30u);
  EXPECT_EQ((*parts)[1].held.task_end(), 5u);
  EXPECT_EQ((*parts)[0].tasks, 4u);
  EXPECT_EQ((*parts)[1].state.train().examples(), 20u);
  c.SetState(StateWithWorkers(12), At(5));
  EXPECT_FALSE(c.TakeCommit());
  c.TakeHosted(0, Cut(HostedCut::WRITTEN, 1, 12, Held(5, 2, 30), Held(8, 3, 10)), At(6));
  const auto manifest = c.TakeCommit();
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->global_step(), 12u);
  EXPECT_EQ(manifest->files_size(), 2);
  ASSERT_EQ(manifest->checkpoint().workers_size(), 2);
  EXPECT_EQ(manifest->checkpoint().workers(0).train().examples(), 111u);
  c.Committed(1, absl::OkStatus(), At(7));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.ordered().number, 0u);
  EXPECT_EQ(c.asked().number, 0u);
  // The same multiple is not due again.
  c.NoteStep(19, 0, At(8));
  c.Plan(At(8));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteStep(20, 0, At(9));
  c.Plan(At(9));
  EXPECT_EQ(c.asked().number, 2u);
}

TEST_F(TaskCheckpointsTest, APserverThatHoldsNothingOfARankIsBehindAllOthers) {
  for (const bool first : {true, false}) {
    JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 10);
    c.Plan(At(10));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(11));
    const auto none = Cut(HostedCut::WRITING, 1, 1, RankPosition(), Held(1, 1, 1));
    const auto some = Cut(HostedCut::WRITING, 1, 1, Held(3, 2, 9), Held(1, 1, 1));
    c.TakeHosted(0, first ? none : some, At(12));
    c.TakeHosted(1, first ? some : none, At(12));
    EXPECT_EQ(c.Parts()->front().held.sequence(), 0u) << first;
  }
}

TEST_F(TaskCheckpointsTest, NothingIsAskedOutsideOfTraining) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 5);
  c.NoteTraining(false, true);
  c.Plan(At(100));
  EXPECT_EQ(c.Demand(At(101)), 1u);
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteTraining(true, true);
  c.Plan(At(102));
  EXPECT_EQ(c.asked().number, 1u);
  EXPECT_EQ(c.Demand(At(103)), 2u) << "the open one lacks what follows";
  c.NoteTraining(false, false);
  EXPECT_FALSE(c.can_begin());
}

TEST_F(TaskCheckpointsTest, TheEndOfAnEpochWaitsForItsCheckpoint) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 0, 2);
  c.NoteStep(10, 0, At(1));
  c.EpochEnds(0, false, At(1));
  EXPECT_FALSE(c.holds_phase());
  c.EpochEnds(1, true, At(2));
  EXPECT_TRUE(c.holds_phase());
  EXPECT_TRUE(c.finishes_job());
  EXPECT_EQ(c.asked().number, 1u);
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(3));
  for (const uint32_t i : {0, 1})
    c.TakeHosted(i, Cut(HostedCut::WRITING, 1, 10, Held(1, 1, 1), Held(1, 1, 1)), At(4));
  EXPECT_FALSE(c.holds_phase());
  EXPECT_TRUE(c.finishes_job());
}

TEST_F(TaskCheckpointsTest, ACheckpointDueAtTheEndOfAnEpochFollowsTheOneThatIsOpen) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    JobCheckpoints c = MakeTraining(Mode::kAsync, 0, 10, 2);
    c.NoteStep(10, 0, At(10));
    c.Plan(At(10));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 1, 0), At(11));
    for (const uint32_t i : {0, 1})
      c.TakeHosted(i, Cut(HostedCut::WRITING, 1, 10, Held(1, 1, 1), Held(1, 1, 1)), At(11));
    EXPECT_FALSE(c.holds_phase());
    c.EpochEnds(1, last, At(12));
    EXPECT_EQ(c.holds_phase(), last);
    c.GiveUp("the disk is full", At(13));
    EXPECT_EQ(c.asked().number, 2u);
    EXPECT_TRUE(c.holds_phase());
    EXPECT_EQ(c.finishes_job(), last);
    // It is made once.
    c.GiveUp("the disk is full", At(14));
    EXPECT_EQ(c.asked().number, 0u);
    EXPECT_FALSE(c.holds_phase());
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
        c.TakeHosted(0, Cut(HostedCut::WRITING, 1, 1, Held(2, 1, 5), Held(3, 2, 5)), At(12));
      EXPECT_TRUE(c.holds_phase());
      c.NoteTraining(false, true);
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
      c.EpochEnds(0, true, At(15));
      c.Plan(At(40));
      EXPECT_EQ(c.asked().number, 0u);
      EXPECT_FALSE(c.holds_phase());
      c.NoteTraining(true, true);
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
      c.TakeHosted(i, Cut(state, 1, 1, Held(2, 1, 5), Held(3, 2, 5)), At(12));
    if (c.needs_state()) c.SetState(StateWithWorkers(1), At(12));
    c.RankLost(1, At(13));
    EXPECT_EQ(c.over(), 0u);
  }
  EXPECT_TRUE(c.TakeCommit());
}

TEST_F(TaskCheckpointsTest, AnInterruptedJobAsksAgainWhenItTrainsAgain) {
  JobCheckpoints c = MakeTraining(Mode::kAsync, 10);
  c.NoteStep(12, 0, At(1));
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
  c.NoteTraining(true, true);
  c.Plan(At(4));
  EXPECT_EQ(c.asked().number, 0u) << "there is no run";
  c.Restart({/*instance=*/9, /*first_step=*/0, /*worker_num=*/2, /*pserver_num=*/2}, At(5));
  EXPECT_EQ(c.asked().number, 0u);
  c.NoteTraining(true, true);
  c.NoteStep(1, 0, At(6));
  c.Plan(At(6));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0, false, false, 1})) << "as demanded";
  c.GiveUp("no room", At(7));
  c.NoteStep(10, 0, At(8));  // the lost run was beyond that
  c.Plan(At(8));
  EXPECT_EQ(c.asked().number, 3u);
}

class GeoCheckpointsTest : public TaskCheckpointsTest {
 protected:
  // A checkpoint whose cuts have begun.
  static JobCheckpoints MakeBegun() {
    JobCheckpoints c = MakeTraining(Mode::kGeo, 0, 10);
    c.NoteStep(6, 0, At(1));
    c.Plan(At(10));
    EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0, true, false, 6}));
    for (const uint32_t rank : {0, 1}) c.TakeWorker(Parked(rank, 1), At(11));
    EXPECT_FALSE(c.asked().released);
    for (const uint32_t i : {0, 1})
      c.TakeHosted(i, Cut(HostedCut::WRITTEN, 1, 6, Held(2, 1, 5), Held(3, 2, 5)), At(12));
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
  EXPECT_THAT(names, testing::UnorderedElementsAre("of-1", "of-1", "worker-0", "worker-1"));
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
  c.TakeHosted(0, Cut(HostedCut::WRITING, 1, 1, Held(2, 1, 5), Held(3, 2, 5)), At(12));
  c.TakeHosted(1, Cut(HostedCut::WRITING, 1, 1, Held(2, 1, 5), Held(4, 2, 9)), At(12));
  ASSERT_TRUE(c.needs_state());
  EXPECT_EQ(c.Parts().status().code(), absl::StatusCode::kInternal);
  c.SetState(c.Parts().status(), At(12));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_FALSE(c.asked().released);
}

}  // namespace
}  // namespace sluice

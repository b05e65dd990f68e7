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
  EXPECT_THAT(c.OutcomeOf(1)->error,
              testing::AllOf(HasSubstr("pserver 1, rank 0, rank 1"),
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

TEST_F(JobCheckpointsTest, NothingIsAskedAfterTheLastStep) {
  JobCheckpoints c = Make(0, 60);
  c.SetSteps(10, 20);
  c.NoteStep(19, 20, At(50));
  EXPECT_TRUE(c.can_begin());
  c.NoteStep(20, 20, At(55));
  c.Plan(At(70));
  EXPECT_FALSE(c.can_begin());
  EXPECT_EQ(c.asked().number, 0u);
  // A multiple behind the last step is not waited for.
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

TEST_F(JobCheckpointsTest, AResumedJobGoesOnFromItsStep) {
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

}  // namespace
}  // namespace sluice

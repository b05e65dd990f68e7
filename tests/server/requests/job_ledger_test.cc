// Tests the ledger alone: requests without shards or values.
#include "server/requests/job_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/base/fake_clock.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class JobLedgerTest : public testing::Test {
 protected:
  using Outcome = JobLedger::Outcome;

  void Open(Mode mode, uint32_t workers, std::optional<uint64_t> max_staleness = std::nullopt) {
    UpdatePolicy policy;
    policy.mode = mode;
    policy.worker_num = workers;
    policy.max_staleness = max_staleness;
    if (view_ == nullptr) view_ = ViewOf(1, workers);
    ledger_ = std::make_unique<JobLedger>("job-1", policy, view_, &clock_);
  }
  static std::shared_ptr<JobView> ViewOf(uint64_t generation, uint32_t workers) {
    auto view = std::make_shared<JobView>();
    view->generation = generation;
    view->active_ranks.assign(workers, true);
    return view;
  }
  static Caller Rank(uint32_t rank, uint64_t incarnation = 1) {
    return {rank, incarnation, 100 + rank};
  }

  // A request at its last message. `reply` stays here unless the pull is parked.
  struct TestRequest {
    JobLedger::Request request;
    std::unique_ptr<ReplyWriter> reply;
  };
  TestRequest RequestOf(uint32_t rank, uint64_t incarnation = 1) {
    TestRequest r;
    r.request.caller = Rank(rank, incarnation);
    r.request.view = view_;
    r.reply = std::make_unique<ReplyWriter>(stream_, ++id_);
    return r;
  }
  Outcome Complete(TestRequest* r) {
    r->request.reply = &r->reply;
    return ledger_->Complete(&r->request);
  }
  Outcome Push(uint32_t rank, uint64_t sequence, uint64_t pulled_others = 0) {
    TestRequest r = RequestOf(rank);
    r.request.counts = true;
    r.request.frame.header.mutable_push()->set_sequence(sequence);
    r.request.frame.header.mutable_push()->set_pulled_others(pulled_others);
    return Complete(&r);
  }
  Outcome Pull(uint32_t rank, uint64_t applied_sequence = 0, uint64_t for_push = 0) {
    TestRequest r = RequestOf(rank);
    r.request.frame.header.mutable_pull()->set_applied_sequence(applied_sequence);
    r.request.frame.header.mutable_pull()->set_for_push(for_push);
    return Complete(&r);
  }
  Outcome EndEpoch(uint32_t rank, uint32_t epoch) {
    TestRequest r = RequestOf(rank);
    r.request.frame.header.mutable_end_epoch()->set_epoch(epoch);
    Outcome outcome = Complete(&r);
    if (outcome.flush) outcome = Settled(&r, outcome);
    return outcome;
  }
  Outcome Settled(TestRequest* r, const Outcome& done) {
    Outcome outcome = ledger_->Settle(&r->request, done);
    outcome.flush = done.flush;
    outcome.close_step = done.close_step;
    return outcome;
  }
  // A commit fused with the pull of its result.
  TestRequest CommitOf(uint32_t rank, uint64_t step) {
    TestRequest r = RequestOf(rank);
    r.request.frame.header.mutable_commit()->set_sequence(step);
    r.request.frame.header.mutable_pull()->set_applied_sequence(step);
    return r;
  }
  HostedJob Report() {
    HostedJob report;
    ledger_->FillReport(&report);
    return report;
  }

  FakeClock clock_;
  std::shared_ptr<const JobView> view_;
  std::unique_ptr<JobLedger> ledger_;
  const std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
  uint64_t id_ = 0;
};

TEST_F(JobLedgerTest, AdmitsTheLatestLifeOfARankInTheJobsGeneration) {
  Open(Mode::kAsync, 2);
  EXPECT_EQ(*ledger_->Hello(Rank(0, 2)), view_) << "shards must fence the earlier life";
  EXPECT_EQ(*ledger_->Hello(Rank(0, 2)), nullptr) << "this life is known";
  EXPECT_EQ(ledger_->Hello(Rank(0, 1)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ledger_->Hello(Rank(2)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ledger_->Admit(Rank(0, 2), 1), view_);
  EXPECT_EQ(ledger_->Admit(Rank(0, 1), 1).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ledger_->Admit(Rank(0, 2), 2).status().code(), absl::StatusCode::kFailedPrecondition);
  ledger_->Close();
  EXPECT_EQ(ledger_->Admit(Rank(0, 2), 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobLedgerTest, OnlyAHigherGenerationReplacesTheView) {
  Open(Mode::kAsync, 1);
  const auto second = ViewOf(5, 1);
  ledger_->SetView(second);
  EXPECT_EQ(*ledger_->Admit(Rank(0), 5), second);
  ledger_->SetView(ViewOf(4, 1));
  EXPECT_EQ(ledger_->view(), second);
  EXPECT_EQ(Push(0, 1).stamp.generation, 5u) << "an answer names the generation of its moment";
}

TEST_F(JobLedgerTest, FramesCountOnceAndInOrder) {
  Open(Mode::kAsync, 2);
  EXPECT_EQ(Push(0, 1).stamp.others, 0u);
  Push(0, 1);
  Push(0, 3);
  EXPECT_EQ(Report().frames_applied(), 1u);
  EXPECT_EQ(Push(1, 1).stamp.others, 1u);
  Push(0, 2, 1);  // pulled after the frame of rank 1
  EXPECT_EQ(Report().frames_applied(), 3u);
  EXPECT_EQ(Report().staleness().sum(), 1u);
  TestRequest refused = RequestOf(0);
  refused.request.frame.header.mutable_push()->set_sequence(3);
  Complete(&refused);
  EXPECT_EQ(Report().frames_applied(), 3u) << "a frame that was not applied does not count";
}

TEST_F(JobLedgerTest, PullOfAStepWaitsForTheLastCommitAndTheShards) {
  Open(Mode::kSync, 2);
  TestRequest first = CommitOf(0, 1), last = CommitOf(1, 1);
  const Outcome waits = Complete(&first);
  EXPECT_TRUE(waits.parked);
  EXPECT_EQ(first.reply, nullptr);
  EXPECT_EQ(ledger_->parked(), 1u);
  const Outcome closes = Complete(&last);
  EXPECT_TRUE(closes.close_step);
  EXPECT_THAT(closes.ready, IsEmpty()) << "the shards have not applied the step";
  EXPECT_TRUE(Pull(0, 1).parked);
  const Outcome settled = Settled(&last, closes);
  EXPECT_TRUE(settled.status.ok());
  EXPECT_FALSE(settled.parked);
  EXPECT_NE(last.reply, nullptr);
  ASSERT_THAT(settled.ready, SizeIs(2));
  EXPECT_EQ(settled.ready[0].view, view_) << "a parked pull keeps the view it came with";
  EXPECT_EQ(settled.ready[0].stamp.generation, 1u);
  EXPECT_EQ(ledger_->parked(), 0u);
}

TEST_F(JobLedgerTest, RefusedCommitStillCountsItsFrame) {
  Open(Mode::kSync, 2);
  TestRequest r = CommitOf(0, 1);
  r.request.counts = true;
  r.request.frame.header.mutable_push()->set_sequence(1);
  r.request.commit = absl::InvalidArgumentError("a shard lacks the push");
  const Outcome outcome = Complete(&r);
  EXPECT_EQ(outcome.status, r.request.commit);
  EXPECT_NE(r.reply, nullptr);
  EXPECT_EQ(Report().frames_applied(), 1u);
  EXPECT_EQ(Report().waiting_for(), "") << "no commit was recorded";
  TestRequest ahead = CommitOf(0, 2);
  EXPECT_EQ(Complete(&ahead).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Pull(0, 2).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobLedgerTest, RefusedRequestStillReleasesPullsThatItsFrameMadeReady) {
  Open(Mode::kAsync, 2, 0);
  Pull(1);
  Push(0, 1);
  EXPECT_TRUE(Pull(0).parked);
  TestRequest r = RequestOf(1);
  r.request.counts = true;
  r.request.frame.header.mutable_push()->set_sequence(1);
  r.request.frame.header.mutable_pull()->set_applied_sequence(9);
  const Outcome outcome = Complete(&r);
  EXPECT_FALSE(outcome.status.ok());
  ASSERT_THAT(outcome.ready, SizeIs(1));
  EXPECT_EQ(outcome.ready[0].caller.rank, 0u);
  EXPECT_EQ(outcome.ready[0].stamp.others, 1u) << "the frame that made it ready is in its values";
}

TEST_F(JobLedgerTest, IdleRankDelaysNoOtherRank) {
  Open(Mode::kAsync, 3, 0);
  Pull(1);
  Pull(2);
  Push(0, 1);
  EXPECT_TRUE(Pull(0).parked);
  EXPECT_THAT(EndEpoch(1, 0).ready, IsEmpty());
  ASSERT_TRUE(ledger_->Hello(Rank(2, 2)).ok());  // a new life of the last one that trains
  EXPECT_THAT(ledger_->TakeReady(), SizeIs(1));
}

// It was read from an earlier stream after the rank had said the rest over a newer one.
TEST_F(JobLedgerTest, ALatePullWakesNoIdleRank) {
  Open(Mode::kAsync, 2, 1);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_FALSE(Pull(rank, 0, 1).parked);
    Push(rank, 1);
  }
  EndEpoch(0, 0);
  EXPECT_FALSE(Pull(0, 0, 1).parked) << "it is answered";
  for (uint64_t push = 2; push < 6; ++push) {
    EXPECT_FALSE(Pull(1, 0, push).parked) << push;
    Push(1, push);
  }
}

TEST_F(JobLedgerTest, FenceDropsTheParkedPullsOfLivesThatAreOver) {
  Open(Mode::kSync, 2);
  TestRequest first = CommitOf(0, 1), last = CommitOf(1, 1);
  first.request.frame.header.mutable_commit()->mutable_totals()->set_examples(9);
  EXPECT_TRUE(Complete(&first).parked);
  const JobLedger::Fenced fenced = ledger_->Fence({4, 1});
  ASSERT_THAT(fenced.dropped, SizeIs(1));
  EXPECT_EQ(fenced.dropped[0].caller.incarnation, 1u);
  ASSERT_THAT(fenced.commits, SizeIs(2));
  EXPECT_EQ(fenced.commits[0].sequence(), 1u);
  EXPECT_EQ(fenced.commits[0].totals().examples(), 9u);
  EXPECT_EQ(fenced.commits[1].sequence(), 0u);
  // The commit stands, since every pserver holds that step's push.
  EXPECT_TRUE(Complete(&last).close_step);
}

TEST_F(JobLedgerTest, ACommitForALostRankClosesTheStepOnce) {
  Open(Mode::kSync, 2);
  sluice::Commit lost;
  lost.set_sequence(1);
  lost.mutable_totals()->set_examples(9);
  TestRequest first = CommitOf(0, 1);
  EXPECT_TRUE(Complete(&first).parked);
  ledger_->Fence({1, 4});
  const Outcome closes = ledger_->CommitForLost(1, lost);
  EXPECT_TRUE(closes.close_step);
  EXPECT_FALSE(ledger_->CommitForLost(1, lost).close_step) << "repeated while the shards apply it";
  EXPECT_EQ(ledger_->closed_step(), 0u);
  EXPECT_THAT(ledger_->StepClosed(closes), SizeIs(1)) << "the pull of the other rank";
  EXPECT_EQ(ledger_->closed_step(), 1u);
  const Outcome again = ledger_->CommitForLost(1, lost);
  EXPECT_TRUE(again.status.ok()) << "repeated when the step has closed";
  EXPECT_FALSE(again.close_step);
  EXPECT_EQ(ledger_->Fence({1, 4}).commits[1].totals().examples(), 9u);
}

TEST_F(JobLedgerTest, AStepWithACommitForALostRankWaitsForTheOthers) {
  Open(Mode::kSync, 3);
  sluice::Commit lost;
  lost.set_sequence(1);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(ledger_->CommitForLost(1, lost).close_step);
  TestRequest first = CommitOf(0, 1), last = CommitOf(2, 1);
  EXPECT_TRUE(Complete(&first).parked);
  const Outcome closes = Complete(&last);
  ASSERT_TRUE(closes.close_step);
  EXPECT_THAT(Settled(&last, closes).ready, SizeIs(1));
  // The next step does not close without the lost rank.
  TestRequest next_0 = CommitOf(0, 2), next_2 = CommitOf(2, 2);
  EXPECT_TRUE(Complete(&next_0).parked);
  EXPECT_TRUE(Complete(&next_2).parked);
  lost.set_sequence(3);
  EXPECT_EQ(ledger_->CommitForLost(1, lost).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_->closed_step(), 1u);
}

TEST_F(JobLedgerTest, TheLastTwoCommitsOfARankAreKnown) {
  Open(Mode::kSync, 1);
  for (const uint64_t step : {1, 2, 3}) {
    TestRequest commit = CommitOf(0, step);
    commit.request.frame.header.mutable_commit()->mutable_totals()->set_examples(10 * step);
    const Outcome closes = Complete(&commit);
    ASSERT_TRUE(closes.close_step);
    Settled(&commit, closes);
  }
  const JobLedger::Fenced fenced = ledger_->Fence({2});
  EXPECT_EQ(fenced.commits[0].totals().examples(), 30u);
  EXPECT_EQ(fenced.commits_before[0].sequence(), 2u);
  EXPECT_EQ(fenced.commits_before[0].totals().examples(), 20u);
}

TEST_F(JobLedgerTest, AFencedRequestThatIsUnderWayRecordsNothing) {
  Open(Mode::kSync, 1);
  TestRequest late = CommitOf(0, 1);  // admitted before the fence
  late.request.counts = true;
  late.request.frame.header.mutable_push()->set_sequence(1);
  EXPECT_EQ(ledger_->Fence({2}).commits[0].sequence(), 0u);
  const Outcome outcome = Complete(&late);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(outcome.close_step);
  EXPECT_NE(late.reply, nullptr);
  EXPECT_EQ(Report().frames_applied(), 0u);
  EXPECT_EQ(ledger_->Fence({2}).commits[0].sequence(), 0u);
}

TEST_F(JobLedgerTest, AFenceWhileAStepClosesParksNothingOfTheFencedLife) {
  Open(Mode::kSync, 1);
  TestRequest commit = CommitOf(0, 1);
  const Outcome closes = Complete(&commit);
  ASSERT_TRUE(closes.close_step);
  EXPECT_EQ(ledger_->Fence({2}).commits[0].sequence(), 1u) << "the commit was recorded before";
  EXPECT_EQ(Settled(&commit, closes).status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(ledger_->Admit(Rank(0, 2), 1).ok());
}

TEST_F(JobLedgerTest, AFencedRankDelaysNoOtherRank) {
  Open(Mode::kAsync, 2, 0);
  Pull(1);
  Push(0, 1);
  EXPECT_TRUE(Pull(0).parked);
  ledger_->Fence({1, 2});
  EXPECT_THAT(ledger_->TakeReady(), SizeIs(1));
  EXPECT_EQ(Pull(1).status.code(), absl::StatusCode::kAborted) << "its request was under way";
  EXPECT_FALSE(Pull(0).parked) << "the late request has not made the rank active again";
}

TEST_F(JobLedgerTest, EpochIsFlushedWhenEveryRankHasEndedIt) {
  Open(Mode::kAsync, 2);
  EXPECT_FALSE(EndEpoch(0, 0).flush);
  Push(0, 1);  // withdraws the end
  EXPECT_FALSE(EndEpoch(1, 0).flush);
  EXPECT_TRUE(EndEpoch(0, 0).flush);
  Push(1, 1);  // a task of a dead rank, after the flush
  EXPECT_TRUE(EndEpoch(1, 0).flush);
}

TEST_F(JobLedgerTest, StepsAndEpochsDoNotWaitForInactiveRanks) {
  auto view = ViewOf(1, 3);
  view->active_ranks[1] = false;
  view_ = view;
  Open(Mode::kSync, 3);
  EXPECT_EQ(ledger_->Hello(Rank(1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ledger_->Hello(Rank(2)).ok());
  TestRequest first = CommitOf(0, 1), last = CommitOf(2, 1);
  EXPECT_FALSE(Complete(&first).close_step);
  EXPECT_TRUE(Complete(&last).close_step);
  EXPECT_FALSE(EndEpoch(0, 0).flush);
  EXPECT_TRUE(EndEpoch(2, 0).flush);
}

TEST_F(JobLedgerTest, ParkedPullsAreBoundedAndDroppedWithTheirStreamOrJob) {
  Open(Mode::kSync, 2);
  for (size_t i = 0; i < 2 * JobLedger::kMaxParkedPerWorker; ++i) {
    ASSERT_TRUE(Pull(i % 2, 1).parked);
  }
  EXPECT_EQ(Pull(0, 1).status.code(), absl::StatusCode::kResourceExhausted);
  ledger_->ForgetStream(Rank(0).stream);
  EXPECT_EQ(ledger_->parked(), JobLedger::kMaxParkedPerWorker);
  EXPECT_TRUE(Pull(0, 1).parked);
  EXPECT_THAT(ledger_->Close(), SizeIs(JobLedger::kMaxParkedPerWorker + 1));
  EXPECT_EQ(ledger_->parked(), 0u);
  EXPECT_EQ(Pull(0).status.code(), absl::StatusCode::kNotFound);
}

TEST_F(JobLedgerTest, AParkedPullKeepsItsKeysAndNotThePushBeforeThem) {
  Open(Mode::kSync, 2);
  // One owner for the whole message, as gRPC has.
  const auto message = std::make_shared<std::string>(std::string(1 << 20, 'p') + "keys");
  for (const bool with_push : {true, false}) {
    TestRequest r = RequestOf(0);
    r.request.counts = with_push;
    if (with_push) r.request.frame.header.mutable_push()->set_sequence(1);
    r.request.frame.header.mutable_pull()->set_applied_sequence(1);
    r.request.frame.payload = PayloadReader({Slice(message->data(), message->size(), message)});
    r.request.frame.payload.Skip(message->size() - 4);
    ASSERT_TRUE(Complete(&r).parked);
    EXPECT_EQ(message.use_count(), 1) << "the message is kept with the pull";
  }
  std::vector<ParkedPull> parked = ledger_->Close();
  ASSERT_THAT(parked, SizeIs(2));
  for (ParkedPull& pull : parked) {
    ASSERT_EQ(pull.payload.remaining(), 4u);
    EXPECT_GE(pull.bytes, 4u);
    std::string keys(4, ' ');
    pull.payload.Copy(keys.data(), 4);
    EXPECT_EQ(keys, "keys");
  }
}

TEST_F(JobLedgerTest, AParkedPullCopiesKeysThatAreLent) {
  Open(Mode::kSync, 2);
  std::string message = "keys of a pull";
  TestRequest r = RequestOf(0);
  r.request.frame.header.mutable_pull()->set_applied_sequence(1);
  const auto owner = std::make_shared<char>();
  r.request.frame.payload =
      PayloadReader(LentMessage({Slice(message.data(), message.size(), owner)}));
  r.request.frame.payload.Skip(4);
  ASSERT_TRUE(Complete(&r).parked);
  EXPECT_EQ(owner.use_count(), 1);
  std::fill(message.begin(), message.end(), '!');
  std::vector<ParkedPull> parked = ledger_->Close();
  ASSERT_THAT(parked, SizeIs(1));
  std::string keys(parked[0].payload.remaining(), ' ');
  parked[0].payload.Copy(keys.data(), keys.size());
  EXPECT_EQ(keys, " of a pull");
}

TEST_F(JobLedgerTest, TheKeysOfParkedPullsAreBounded) {
  Open(Mode::kSync, 2);
  const auto keys = std::make_shared<std::string>(JobLedger::kMaxParkedBytesPerWorker / 4, 'k');
  const auto pull = [&](uint32_t rank) {
    TestRequest r = RequestOf(rank);
    r.request.frame.header.mutable_pull()->set_applied_sequence(1);
    r.request.frame.payload = PayloadReader({Slice(keys->data(), keys->size(), keys)});
    return Complete(&r);
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pull(0).parked);
  EXPECT_EQ(pull(0).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(pull(1).parked) << "another rank has room of its own";
}

TEST_F(JobLedgerTest, ReportsTheFirstErrorOfTheJob) {
  Open(Mode::kAsync, 1);
  ledger_->Fail("first");
  ledger_->Fail("second");
  EXPECT_EQ(Report().error(), "first");
}

TEST_F(JobLedgerTest, AStepThatMakesACutNamesItInTheAnswersOfThatStepAlone) {
  Open(Mode::kSync, 2);
  for (uint64_t step = 1; step <= 3; ++step) {
    const uint64_t checkpoint = step == 2 ? 7 : 0;
    TestRequest first = CommitOf(0, step), last = CommitOf(1, step);
    first.request.frame.header.mutable_commit()->set_checkpoint(checkpoint);
    EXPECT_TRUE(Complete(&first).parked);
    TestRequest again = CommitOf(0, step);  // with the number that it had, which changes nothing
    again.request.frame.header.mutable_commit()->set_checkpoint(checkpoint);
    EXPECT_TRUE(Complete(&again).parked);
    Outcome done = Complete(&last);
    ASSERT_TRUE(done.close_step);
    EXPECT_EQ(done.checkpoint, checkpoint) << step;
    done = Settled(&last, done);
    EXPECT_EQ(done.stamp.checkpoint, checkpoint);
    ASSERT_THAT(done.ready, SizeIs(2));
    for (const ParkedPull& pull : done.ready) EXPECT_EQ(pull.stamp.checkpoint, checkpoint);
    // A pull that is sent again, and a commit that comes late.
    EXPECT_EQ(Pull(0, step).stamp.checkpoint, checkpoint);
    TestRequest late = CommitOf(0, step);
    late.request.frame.header.mutable_commit()->set_checkpoint(9);
    EXPECT_EQ(Complete(&late).stamp.checkpoint, checkpoint);
  }
}

TEST_F(JobLedgerTest, AJobThatResumesExpectsTheNextStep) {
  UpdatePolicy policy;
  policy.mode = Mode::kSync;
  policy.worker_num = 1;
  view_ = ViewOf(1, 1);
  ledger_ = std::make_unique<JobLedger>("job-1", policy, view_, &clock_, 40);
  EXPECT_FALSE(Pull(0, 40).parked);
  EXPECT_TRUE(Pull(0, 41).parked);
  EXPECT_TRUE(Push(0, 41).status.ok());
  EXPECT_EQ(Report().frames_applied(), 1u);
  TestRequest commit = CommitOf(0, 41);
  EXPECT_TRUE(Complete(&commit).close_step);
}

TEST_F(JobLedgerTest, ShardsThatAreTakenOverAwaitEveryRankOnce) {
  Open(Mode::kAsync, 2, /*max_staleness=*/1);
  ledger_->AwaitRanks();
  HostedJob report;
  ledger_->FillReport(&report);
  EXPECT_THAT(report.awaited_ranks(), testing::ElementsAre(0, 1));
  ASSERT_TRUE(ledger_->Hello(Rank(0)).ok());
  EXPECT_EQ(ledger_->Awaits(Rank(0), /*generation=*/2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*ledger_->Awaits(Rank(0), 1), view_);
  EXPECT_FALSE(ledger_->Heard(Rank(0), 40, /*epochs_ended=*/0));
  EXPECT_EQ(*ledger_->Awaits(Rank(0), 1), nullptr);
  EXPECT_EQ(*ledger_->Awaits(Rank(0), 2), nullptr) << "another route does not matter any more";
  EXPECT_TRUE(ledger_->awaits_any());
  // Frames are counted from there on, so that the bound of staleness holds.
  Push(0, 40);
  Push(0, 41);
  ledger_->FillReport(&report);
  EXPECT_EQ(report.frames_applied(), 1u);
  EXPECT_FALSE(ledger_->Heard(Rank(1), 7, 0));
  EXPECT_FALSE(ledger_->awaits_any());
  Push(1, 8);
  ledger_->FillReport(&report);
  EXPECT_EQ(report.frames_applied(), 2u);
}

TEST_F(JobLedgerTest, ARankThatEndedItsEpochBeforeATakeoverNeedNotSaySoAgain) {
  Open(Mode::kAsync, 2);
  ledger_->AwaitRanks();
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(ledger_->Hello(Rank(rank)).ok());
  EXPECT_FALSE(ledger_->Heard(Rank(0), 3, /*epochs_ended=*/2));
  EXPECT_TRUE(ledger_->Heard(Rank(1), 3, /*epochs_ended=*/2)) << "the shards must be flushed";
}

}  // namespace
}  // namespace sluice

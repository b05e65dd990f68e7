#include "worker/train/step_commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "tests/common/collective/rank_threads.h"
#include "tests/worker/fakes.h"
#include "worker/train/sync_trainer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveOptions Options() {
  CollectiveOptions options;
  options.timeout = absl::Seconds(20);
  return options;
}

// Meetings of a group that is there, and that does not continue after an error.
class FakeMeetings : public RankMeetings {
 public:
  FakeMeetings(Collective* group, uint32_t rank, uint32_t ranks)
      : group_(group), rank_(rank), ranks_(ranks) {}
  Collective* collective() override { return group_; }
  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return ranks_; }
  void Ask(uint64_t, const RankGroupCards&) override {}
  void AddTo(PollRequest*) const override {}
  const std::atomic<bool>& asked() const override { return asked_; }
  absl::Status Attend() override { return absl::OkStatus(); }
  absl::Status Meet(uint64_t) override { return absl::OkStatus(); }
  absl::Status Recover(const absl::Status& why, uint64_t) override {
    if (!known_after_meeting) return why;
    closed_ = *known_after_meeting;
    return absl::OkStatus();
  }
  absl::Status GiveUp(const absl::Status& why) override { return why; }
  void EndAfter(uint64_t steps) override { last_step = steps; }
  bool NeverCloses(uint64_t step) const override { return step > last_step; }
  absl::Status RunFor(uint64_t, absl::FunctionRef<absl::Status()> operation) override {
    return operation();
  }
  uint64_t closed() const override { return closed_; }
  bool has_means() const override { return true; }
  ClosedStep* newest() override { return &newest_; }
  std::optional<uint64_t> known_after_meeting;  // steps that have closed; nullopt: nobody meets
  uint64_t last_step = UINT64_MAX;

 private:
  Collective* const group_;
  const uint32_t rank_, ranks_;
  const std::atomic<bool> asked_{false};
  uint64_t closed_ = 0;
  ClosedStep newest_;
};

TEST(CollectiveCommitTest, AStepClosesOnceEveryRankHasCommittedItWithTheCheckpointOfRank0) {
  RankThreads group("shm", 3, Options());
  group.Join();
  std::atomic<uint32_t> committed{0};
  std::vector<std::vector<uint64_t>> seen(3);
  group.ExpectOk([&](uint32_t rank, Collective& collective) -> absl::Status {
    FakeMeetings meetings(&collective, rank, 3);
    WorkerStats stats("job", rank, 1000, nullptr);
    CollectiveCommit commit(&meetings, &stats);
    commit.StartPull({});
    SLUICE_RETURN_IF_ERROR(commit.Wait());  // the first step waits for nobody
    for (uint64_t step = 0; step < 20; ++step) {
      committed.fetch_add(1);
      stats.AddStep(/*examples=*/10 + rank, 0.5, 0.25);
      EXPECT_TRUE(commit.Start(step, {}, rank == 0 && step == 7 ? 3 : 0).ok());
      SLUICE_RETURN_IF_ERROR(commit.Wait());
      if (committed.load() < 3 * (step + 1)) return absl::InternalError("closed too soon");
      if (commit.checkpoint_seen() != 0) seen[rank] = {step, commit.checkpoint_seen()};
      // Every rank knows the sums of all.
      const ClosedStep& newest = *meetings.newest();
      if (newest.steps != step + 1 || newest.totals[2].examples() != 12 * (step + 1) ||
          newest.totals[0].loss_sum() != 0.5 * static_cast<double>(step + 1)) {
        return absl::InternalError("the sums are wrong");
      }
    }
    return absl::OkStatus();
  });
  for (const auto& of_rank : seen) EXPECT_THAT(of_rank, ElementsAre(7, 3));
}

TEST(CollectiveCommitTest, ARankThatIsLostBeforeItsCommitLeavesTheStepOpen) {
  RankThreads group("shm", 3, Options());
  group.Join();
  const auto results = group.Run([&](uint32_t rank, Collective& collective) -> absl::Status {
    if (rank == 2) {
      collective.Leave();
      return absl::OkStatus();
    }
    FakeMeetings meetings(&collective, rank, 3);
    if (rank == 1) meetings.known_after_meeting = 1;
    CollectiveCommit commit(&meetings, nullptr);
    EXPECT_TRUE(commit.Start(0, {}, 0).ok());
    return commit.Wait();
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable) << results[0];
  EXPECT_TRUE(results[1].ok()) << "its meeting knew that the step had closed: " << results[1];
}

TEST(CollectiveCommitTest, TheLastStepOfAJobClosesWithoutRecordsAndALaterOneNever) {
  RankThreads group("shm", 2, Options());
  group.Join();
  const std::atomic<bool> known{true};
  group.ExpectOk([&](uint32_t rank, Collective& collective) -> absl::Status {
    if (rank == 1) {
      collective.Leave();
      return absl::OkStatus();
    }
    FakeMeetings meetings(&collective, rank, 2);
    CollectiveCommit commit(&meetings, nullptr);
    meetings.EndAfter(4);
    EXPECT_TRUE(commit.Start(4, {}, 0).ok());
    EXPECT_FALSE(commit.WaitUnless(known).has_value());
    EXPECT_FALSE(commit.Wait().ok());
    commit.Drop();
    EXPECT_TRUE(commit.Wait().ok()) << "nothing is committed any more";
    EXPECT_TRUE(commit.Start(3, {}, 0).ok());
    EXPECT_EQ(commit.WaitUnless(known), absl::OkStatus());
    EXPECT_TRUE(commit.Start(2, {}, 0).ok());
    EXPECT_FALSE(commit.Wait().ok()) << "of a step before the last one nothing is known";
    return absl::OkStatus();
  });
}

TEST(CollectiveCommitTest, RanksAtDifferentStepsGetAnError) {
  RankThreads group("shm", 2, Options());
  group.Join();
  const auto results = group.Run([&](uint32_t rank, Collective& collective) {
    FakeMeetings meetings(&collective, rank, 2);
    CollectiveCommit commit(&meetings, nullptr);
    EXPECT_TRUE(commit.Start(5 + rank, {}, 0).ok());
    return commit.Wait();
  });
  EXPECT_EQ(results[1].code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(results[1].message()), HasSubstr("step 5"));
}

// Of a program with the state `state`.
class NetWithState : public OnesNet {
 public:
  absl::StatusOr<std::string> SaveState() const override { return state; }
  std::string state;
};

TEST(CollectiveCommitTest, RefusesTheStateOfAProgramWhichNobodyWouldKeep) {
  NetWithState net;
  CollectiveCommit commit(nullptr, nullptr, &net);
  EXPECT_TRUE(commit.Start(0, {}, 0).ok());
  net.state = "p7";
  const absl::Status refused = commit.Start(1, {}, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("worker.save_state"));
  // States of other networks may begin anew.
  EXPECT_TRUE(CollectiveCommit(nullptr, nullptr).Start(1, {}, 0).ok());
}

// Records the order of a step's exchange, its push and its update.
class RecordingTables : public DenseTables {
 public:
  void AddToPull(StepBuffers*, PullRequest*) const override {}
  std::vector<const float*> ValuesOf(const StepBuffers&) const override { return {values_}; }
  void AddToPush(const StepBuffers*, PushRequest*) const override {}
  void Send(uint64_t step, const StepBuffers*, double) override {
    events.push_back(absl::StrCat("send ", step));
  }
  absl::Status Exchange(uint64_t step, const StepBuffers*, double) override {
    events.push_back(absl::StrCat("exchange ", step));
    return on_exchange ? on_exchange(step) : absl::OkStatus();
  }
  absl::Status CloseStep(uint64_t steps) override {
    events.push_back(absl::StrCat("close ", steps));
    return absl::OkStatus();
  }
  std::vector<std::string> events;
  std::function<absl::Status(uint64_t step)> on_exchange;  // may be null

 private:
  float values_[2] = {};
};

class DenseOnlyTrainerTest : public ::testing::Test {
 protected:
  // Of a job whose model has only dense tables, at `at`.
  void Train(TableConfig::UpdateAt at, size_t steps) {
    TableConfig table = SgdTable("dense", TableConfig::DENSE, 2, 1.0f);
    table.set_update_at(at);
    const TablesModel model({table});
    FakeClient client(model, 1.0f);
    client.on_push_step = [this](uint64_t step) {
      tables_.events.push_back(absl::StrCat("push ", step));
      return pushed_;
    };
    OnesNet net;
    JobSpec spec;
    std::atomic<bool> cancelled{false};
    JobContext context;
    context.spec = &spec;
    context.model = &model;
    context.dense = &tables_;
    context.meetings = &meetings_;
    context.net = &net;
    context.client = &client;
    context.stats = &stats_;
    context.cuts = &cuts_;
    context.cancelled = &cancelled;
    context.end = &end_.emplace();
    BatchQueue queue(steps + 1);
    for (size_t i = 0; i < steps; ++i) {
      auto prepared = std::make_shared<PreparedBatch>();
      prepared->batch.n = 3;
      queue.Push(prepared);
    }
    queue.Close(absl::OkStatus());
    stats_.BeginEpoch(0);
    SyncTrainer trainer(context);
    status_ = trainer.Train(EpochPlan(), &queue);
    commits_ = client.commits;
  }

  RankThreads group_{"shm", 1, Options()};
  FakeMeetings meetings_{&group_.rank(0), 0, 1};
  RecordingTables tables_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  WorkerCuts cuts_{"job", 0, 1, nullptr};
  std::optional<TrainingEnd> end_;
  absl::Status pushed_;  // of each push to pservers
  absl::Status status_;
  std::vector<uint64_t> commits_;  // at pservers
};

TEST_F(DenseOnlyTrainerTest, RanksCloseStepsWithoutPserversAndThenUpdate) {
  group_.Join();
  WorkerCheckpoint wanted;
  wanted.set_number(4);
  wanted.set_every_steps(2);
  cuts_.SetWanted(wanted);
  Train(TableConfig::COLLECTIVE, 3);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(commits_, IsEmpty());
  EXPECT_THAT(tables_.events, ElementsAre("send 0", "exchange 0", "close 1", "send 1", "exchange 1",
                                          "close 2", "send 2", "exchange 2", "close 3"));
  PollRequest report;
  cuts_.AddTo(&report);
  EXPECT_EQ(report.cut().checkpoint(), 4u);
  EXPECT_EQ(report.cut().step(), 2u);
}

TEST_F(DenseOnlyTrainerTest, AStepThatDoesNotCloseIsNoUpdate) {
  Train(TableConfig::COLLECTIVE, 3);  // the group is not joined
  EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(tables_.events, ElementsAre("send 0", "exchange 0"));
}

TEST_F(DenseOnlyTrainerTest, PserversWithTablesCloseTheSteps) {
  Train(TableConfig::PSERVER, 2);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(commits_, ElementsAre(0, 1));
}

TEST_F(DenseOnlyTrainerTest, AStepWhoseExchangeEndsWithTheTrainingIsDropped) {
  group_.Join();
  for (const TableConfig::UpdateAt at : {TableConfig::COLLECTIVE, TableConfig::PSERVER}) {
    tables_.events.clear();
    tables_.on_exchange = [this](uint64_t step) -> absl::Status {
      if (step < 1) return absl::OkStatus();
      EarlyEnd end;
      end.set_last_step(1);
      end_->Set(end);
      return absl::UnavailableError("rank 1 has left");
    };
    Train(at, 3);
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_EQ(tables_.events.back(), "exchange 1");
    EXPECT_EQ(stats_.EpochReport().examples(), 3u);
    EXPECT_EQ(stats_.EpochSteps(), 1u);
  }
}

TEST_F(DenseOnlyTrainerTest, TheExchangeBeginsBeforeThePushIsAcknowledged) {
  Train(TableConfig::PSERVER, 2);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(tables_.events, ElementsAre("send 0", "push 0", "exchange 0", "close 1", "send 1",
                                          "push 1", "exchange 1", "close 2"));
}

TEST_F(DenseOnlyTrainerTest, AStepWhosePushFailsIsNeitherCommittedNorWaitedFor) {
  pushed_ = absl::UnavailableError("a pserver is lost");
  Train(TableConfig::PSERVER, 2);
  EXPECT_EQ(status_, pushed_);
  EXPECT_THAT(commits_, IsEmpty());
  EXPECT_THAT(tables_.events, ElementsAre("send 0", "push 0"));
}

}  // namespace
}  // namespace sluice

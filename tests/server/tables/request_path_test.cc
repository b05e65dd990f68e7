// Checks what workers get for their requests, in the three modes, against numbers computed by hand.
#include "server/tables/request_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "server/shards/shard_threads.h"
#include "tests/server/job_with_workers.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RequestPathTest : public JobWithWorkers {};

TEST_F(RequestPathTest, PullOfAMissingKeyGivesItsInitialValueAndCreatesNoRow) {
  Open(MakeSpec(1, true, 0));
  EXPECT_THAT(worker(0).Sparse({5, 6})[5], ElementsAre(0.25f, 0.25f, 0.25f));
  EXPECT_EQ(job_->Report().rows(), 0u);
  EXPECT_EQ(job_->Report().dense_elements(), 4u);
}

TEST_F(RequestPathTest, AsyncAppliesEachPushUnscaledWhenItArrives) {
  Open(MakeSpec(2, true, 0));
  Push(0, {.sequence = 1, .weight = 64, .dense = {1, 2, 3, 4}, .rows = {{5, {1, 0, -1}}}});
  EXPECT_THAT(worker(1).Dense(), ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  EXPECT_THAT(worker(1).Sparse({5})[5], ElementsAre(-0.25f, 0.25f, 0.75f));
  EXPECT_EQ(job_->Report().rows(), 1u);
}

// Both the close of a step and the answers that it makes ready are shared.
TEST_F(RequestPathTest, SeveralThreadsCloseASyncStepWithTheSameBits) {
  constexpr int kWorkers = 3;
  ShardThreads threads(/*helpers=*/3, /*worth_sharing=*/std::chrono::microseconds(0));
  std::vector<std::vector<float>> dense;
  std::vector<Rows> rows;
  for (ShardThreads* const helpers : {static_cast<ShardThreads*>(nullptr), &threads}) {
    workers_.clear();
    Open(MakeSpec(kWorkers, false, 0, /*num_shards=*/16), helpers);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<uint64_t> keys(200);
    for (uint64_t step = 1; step <= 20; ++step) {
      for (int rank = 0; rank < kWorkers; ++rank) {
        TestWorker::PushArgs push{.sequence = step, .weight = rank + 1.0};
        for (int i = 0; i < 4; ++i) push.dense.push_back(normal(random));
        for (int i = 0; i < 50; ++i) {
          push.rows[random() % keys.size()] = {normal(random), normal(random), normal(random)};
        }
        ASSERT_THAT(Push(rank, push).errors, IsEmpty());
      }
      std::vector<uint64_t> commits;
      for (int rank = 0; rank < kWorkers; ++rank) commits.push_back(worker(rank).Commit(step));
      for (int rank = 0; rank < kWorkers; ++rank) {
        const Answer& answer = worker(rank).Get(commits[rank]);
        ASSERT_TRUE(answer.done);
        EXPECT_EQ(answer.code, 0);
        EXPECT_EQ(answer.dense, worker(0).Get(commits[0]).dense);
      }
    }
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    dense.push_back(worker(0).Dense());
    rows.push_back(worker(0).Sparse(keys));
  }
  EXPECT_EQ(dense[1], dense[0]);
  EXPECT_EQ(rows[1], rows[0]);
}

TEST_F(RequestPathTest, RetriedPushIsAppliedOnce) {
  Open(MakeSpec(1, true, 0));
  const TestWorker::PushArgs push{.sequence = 1, .dense = {1, 1, 1, 1}, .rows = {{9, {1, 1, 1}}}};
  for (int i = 0; i < 3; ++i) {
    const Answer& answer = Push(0, push);
    EXPECT_TRUE(answer.done);
    EXPECT_THAT(answer.errors, IsEmpty());
  }
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_THAT(worker(0).Sparse({9})[9], ElementsAre(-0.25f, -0.25f, -0.25f));
  EXPECT_EQ(job_->Report().frames_applied(), 1u);
}

TEST_F(RequestPathTest, PushesDoNotChangeAnAnswerThatIsNotYetSent) {
  Open(MakeSpec(1, true, 0));
  Shard* const block = job_->shard_for_test(0, 0);
  Slice lent = block->Lend();
  const uint8_t* const at = lent.data();
  Push(0, {.sequence = 1, .dense = {1, 2, 3, 4}});
  ASSERT_EQ(lent.size(), 4 * sizeof(float));
  float values[4];
  std::memcpy(values, lent.data(), sizeof values);
  EXPECT_THAT(values, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  // Updates use a copy only while the block is lent. After the answer is sent they change it in
  // place.
  EXPECT_NE(block->Lend().data(), at);
  lent = Slice();
  const uint8_t* const now = block->Lend().data();
  Push(0, {.sequence = 2, .dense = {1, 1, 1, 1}});
  EXPECT_EQ(block->Lend().data(), now);
}

TEST_F(RequestPathTest, FrameFromTheFutureIsAnsweredWithTheLastSequence) {
  Open(MakeSpec(1, true, 0));
  Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}});
  const Answer& answer = Push(0, {.sequence = 3, .dense = {8, 8, 8, 8}});
  ASSERT_THAT(answer.errors, SizeIs(5));
  EXPECT_EQ(answer.errors[0].status(), PART_OUT_OF_ORDER);
  EXPECT_EQ(answer.errors[0].last_sequence(), 1u);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_EQ(job_->Report().frames_applied(), 1u);
}

TEST_F(RequestPathTest, ChunksOfARequestAreOneFrame) {
  Open(MakeSpec(1, true, 0));
  const Answer& answer = Push(0, {.sequence = 1,
                                  .dense = {1, 1, 1, 1},
                                  .rows = {{5, {1, 1, 1}}, {6, {2, 2, 2}}},
                                  .in_chunks = true});
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.messages, 1u);
  EXPECT_EQ(job_->Report().frames_applied(), 1u);
  EXPECT_THAT(worker(0).Sparse({6})[6], ElementsAre(-0.75f, -0.75f, -0.75f));
}

TEST_F(RequestPathTest, GradientsToWaitAppliesTheWeightedMeanAndTheRemainderAtTheEndOfTheEpoch) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(2);
  Open(spec);
  Push(0, {.sequence = 1, .weight = 3, .dense = {4, 4, 4, 4}, .rows = {{5, {1, 1, 1}}}});
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(job_->Report().rows(), 0u);
  Push(1, {.sequence = 1, .weight = 1, .dense = {0, 8, 0, 8}, .rows = {{6, {2, 2, 2}}}});
  // (3 x 4 + 1 x 0) / 4 = 3 and (3 x 4 + 8) / 4 = 5, times 0.5; rows: 3/4 and 2/4, times 0.5.
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-0.5f, -1.5f, -0.5f, -1.5f));
  EXPECT_THAT(worker(0).Sparse({5})[5], ElementsAre(-0.125f, -0.125f, -0.125f));
  EXPECT_THAT(worker(0).Sparse({6})[6], ElementsAre(0.0f, 0.0f, 0.0f));
  Push(0, {.sequence = 2, .weight = 7, .dense = {1, 1, 1, 1}});
  worker(0).EndEpoch(0);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-0.5f, -1.5f, -0.5f, -1.5f));
  const uint64_t end = worker(1).EndEpoch(0);
  EXPECT_TRUE(worker(1).Get(end).done);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-1.0f, -2.0f, -1.0f, -2.0f));
  worker(1).EndEpoch(0);  // repeated: nothing is left
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-1.0f, -2.0f, -1.0f, -2.0f));
}

TEST_F(RequestPathTest, PushAfterEndEpochWithdrawsIt) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(3);
  Open(spec);
  worker(0).EndEpoch(0);
  Push(0, {.sequence = 1, .dense = {2, 2, 2, 2}});
  worker(1).EndEpoch(0);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
  worker(0).EndEpoch(0);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0, 0, 0, 0));
  // A task is leased again after all workers had ended.
  Push(1, {.sequence = 1, .dense = {2, 2, 2, 2}});
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0, 0, 0, 0));
  worker(1).EndEpoch(0);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-1, -1, -1, -1));
}

TEST_F(RequestPathTest, GeoHoldsExactlyTheMergedDeltasAndAnswersWithThem) {
  Open(MakeSpec(2, true, 20));
  const Answer& first =
      Push(0, {.sequence = 1, .dense = {2, 0, -2, 4}, .rows = {{5, {1, 2, 4}}}, .delta = true});
  // MEAN of 2 workers: initial + delta / 2.
  EXPECT_THAT(first.dense, ElementsAre(2, 1, 0, 3));
  EXPECT_THAT(first.sparse, ElementsAre(0.75f, 1.25f, 2.25f));
  const Answer& second =
      Push(1, {.sequence = 1, .dense = {2, 2, 2, 2}, .rows = {{5, {-1, 0, 0}}}, .delta = true});
  EXPECT_THAT(second.dense, ElementsAre(3, 2, 1, 4));
  EXPECT_THAT(second.sparse, ElementsAre(0.25f, 1.25f, 2.25f));
  // The first push again: it is not applied, and is answered with the current values.
  const Answer& again =
      Push(0, {.sequence = 1, .dense = {2, 0, -2, 4}, .rows = {{5, {1, 2, 4}}}, .delta = true});
  EXPECT_THAT(again.dense, ElementsAre(3, 2, 1, 4));
  EXPECT_THAT(again.sparse, ElementsAre(0.25f, 1.25f, 2.25f));
  EXPECT_THAT(again.errors, IsEmpty());
  EXPECT_THAT(worker(1).Dense(), ElementsAre(3, 2, 1, 4));
  EXPECT_EQ(job_->Report().rows(), 1u);
}

TEST_F(RequestPathTest, GeoSumAddsUnscaledDeltas) {
  JobSpec spec = MakeSpec(4, true, 20);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_geo_merge(
      ASyncConfigs::SUM);
  Open(spec);
  Push(0, {.sequence = 1, .dense = {1, 2, 3, 4}, .delta = true});
  EXPECT_THAT(Push(3, {.sequence = 1, .dense = {1, 1, 1, 1}, .delta = true}).dense,
              ElementsAre(3, 4, 5, 6));
}

TEST_F(RequestPathTest, RefusesDeltasInAsyncAndGradientsInGeo) {
  Open(MakeSpec(1, true, 20));
  EXPECT_EQ(Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}}).code, 3);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
}

TEST_F(RequestPathTest, SyncAppliesTheWeightedMeanOnceAllHaveCommitted) {
  Open(MakeSpec(3, false, 0));
  Push(0, {.sequence = 1, .weight = 1, .dense = {8, 8, 8, 8}, .rows = {{5, {4, 4, 4}}}});
  Push(1, {.sequence = 1,
           .weight = 3,
           .dense = {0, 4, 0, 4},
           .rows = {{5, {4, 0, 0}}, {6, {8, 8, 8}}}});
  Push(2, {.sequence = 1, .weight = 0});  // an empty slice
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
  const uint64_t p0 = worker(0).Commit(1), p1 = worker(1).Commit(1);
  EXPECT_FALSE(worker(0).Get(p0).done);
  EXPECT_FALSE(worker(1).Get(p1).done);
  const uint64_t p2 = worker(2).Commit(1);
  // (1 x 8 + 3 x 0) / 4 = 2, (8 + 12) / 4 = 5; times 0.5.
  for (auto [rank, id] : std::vector<std::pair<int, uint64_t>>{{0, p0}, {1, p1}, {2, p2}}) {
    EXPECT_TRUE(worker(rank).Get(id).done);
    EXPECT_THAT(worker(rank).Get(id).dense, ElementsAre(0, -1.5f, 0, -1.5f));
  }
  EXPECT_THAT(worker(0).Sparse({5})[5], ElementsAre(0.25f - 2.0f, 0.25f - 0.5f, 0.25f - 0.5f));
  EXPECT_THAT(worker(0).Sparse({6})[6], ElementsAre(0.25f - 3.0f, 0.25f - 3.0f, 0.25f - 3.0f));
}

TEST_F(RequestPathTest, SyncSumsInRankOrderWhateverTheOrderOfArrival) {
  std::vector<std::vector<float>> results;
  for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    workers_.clear();
    Open(MakeSpec(3, false, 0));
    const float g[3] = {0.1f, 1e7f, -1e7f};
    const double n[3] = {3, 7, 7};
    for (int r : order)
      Push(r, {.sequence = 1, .weight = n[r], .dense = {g[r], g[r] / 3, g[r] / 7, 1}});
    for (int r : order) worker(r).Commit(1);
    results.push_back(worker(0).Dense());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  double sum = 0;
  for (auto [g, n] : std::vector<std::pair<float, double>>{{0.1f, 3}, {1e7f, 7}, {-1e7f, 7}}) {
    sum += n * g;
  }
  EXPECT_EQ(results[0][0], 1.0f - 0.5f * static_cast<float>(sum / 17));
}

TEST_F(RequestPathTest, SyncStepOfNoExamplesLeavesDenseAlone) {
  Open(MakeSpec(2, false, 0));
  for (int r = 0; r < 2; ++r)
    Push(r, {.sequence = 1, .weight = 0, .dense = {9, 9, 9, 9}, .rows = {{5, {9, 9, 9}}}});
  for (int r = 0; r < 2; ++r) worker(r).Commit(1);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
  // The key occurred, so its row exists, with a zero gradient.
  EXPECT_THAT(worker(0).Sparse({5})[5], ElementsAre(0.25f, 0.25f, 0.25f));
  EXPECT_EQ(job_->Report().rows(), 1u);
}

TEST_F(RequestPathTest, SyncStepClosesOnceHoweverOftenFramesAndCommitsAreSent) {
  Open(MakeSpec(2, false, 0));
  for (int i = 0; i < 3; ++i) {
    for (int r = 0; r < 2; ++r) Push(r, {.sequence = 1, .dense = {2, 2, 2, 2}});
  }
  for (int i = 0; i < 3; ++i) {
    for (int r = 0; r < 2; ++r) worker(r).Commit(1);
  }
  EXPECT_THAT(worker(0).Dense(), ElementsAre(0, 0, 0, 0));
  for (int r = 0; r < 2; ++r) Push(r, {.sequence = 2, .dense = {2, 2, 2, 2}});
  for (int r = 0; r < 2; ++r) worker(r).Commit(2);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-1, -1, -1, -1));
}

TEST_F(RequestPathTest, SyncRefusesACommitWithoutItsPushAndAPushBeforeTheLastStepClosed) {
  Open(MakeSpec(2, false, 0));
  EXPECT_EQ(worker(0).Get(worker(0).Commit(1)).code, 3);
  Push(0, {.sequence = 1, .dense = {2, 2, 2, 2}});
  worker(0).Commit(1);
  const Answer& early = Push(0, {.sequence = 2, .dense = {2, 2, 2, 2}});
  ASSERT_THAT(early.errors, SizeIs(5));
  EXPECT_EQ(early.errors[0].status(), PART_OUT_OF_ORDER);
}

TEST_F(RequestPathTest, SyncReplayByARestartedRankCountsOnce) {
  Open(MakeSpec(2, false, 0));
  const TestWorker::PushArgs push{.sequence = 1, .weight = 2, .dense = {2, 2, 2, 2}};
  Push(0, push);
  TestWorker restarted(spec_, job_, 0, 2);
  EXPECT_THAT(restarted.Get(restarted.Push(push)).errors, IsEmpty());
  EXPECT_EQ(Push(0, push).code, 10);  // the old life is fenced
  restarted.Commit(1);
  Push(1, {.sequence = 1, .weight = 2, .dense = {4, 4, 4, 4}});
  worker(1).Commit(1);
  EXPECT_THAT(worker(1).Dense(), ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
}

TEST_F(RequestPathTest, BoundedStalenessParksThePullOfAFastWorker) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(0);
  Open(spec);
  worker(0).PullDense();
  worker(1).PullDense();
  Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}});
  const uint64_t one = worker(0).PullDense();
  EXPECT_FALSE(worker(0).Get(one).done);  // step 1 needs 1 step of the other
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(job_->Report().waiting_for(),
              AllOf(HasSubstr("push 1 of rank 1"), HasSubstr("max_staleness"), HasSubstr("1.0 s")));
  EXPECT_TRUE(worker(0).Get(worker(0).PullDense(0, true)).done);  // evaluation does not wait
  Push(1, {.sequence = 1, .dense = {2, 2, 2, 2}});
  EXPECT_TRUE(worker(0).Get(one).done);
  EXPECT_THAT(worker(0).Get(one).dense, ElementsAre(-0.5, -0.5, -0.5, -0.5));
  EXPECT_EQ(worker(0).Get(one).others, 1u);
}

TEST_F(RequestPathTest, LaterPushesOfItsRankDoNotMoveTheStepOfAPipelinedPull) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(1);
  Open(spec);
  worker(1).PullDense();
  const uint64_t pull = worker(0).PullDense(0, false, 4);
  for (uint64_t s = 1; s <= 3; ++s) Push(0, {.sequence = s, .dense = {1, 1, 1, 1}});
  EXPECT_FALSE(worker(0).Get(pull).done);
  Push(1, {.sequence = 1, .dense = {1, 1, 1, 1}});
  EXPECT_FALSE(worker(0).Get(pull).done);
  Push(1, {.sequence = 2, .dense = {1, 1, 1, 1}});  // step 3 needs 3 - 1 = 2
  EXPECT_TRUE(worker(0).Get(pull).done);
}

TEST_F(RequestPathTest, PipelinedPullResentAfterADisconnectIsForTheSameStep) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(1);
  Open(spec);
  worker(1).PullDense();
  worker(0).PullDense(0, false, 3);  // step 2 needs 2 - 1 = 1
  Push(1, {.sequence = 1, .dense = {1, 1, 1, 1}});
  for (uint64_t s = 1; s <= 2; ++s) Push(0, {.sequence = s, .dense = {1, 1, 1, 1}});
  worker(0).Disconnect();
  TestWorker again(spec, job_, 0);
  EXPECT_TRUE(again.Get(again.PullDense(0, false, 3)).done);  // not for step 4
  const uint64_t next = again.PullDense(0, false, 4);
  EXPECT_FALSE(again.Get(next).done);
  Push(1, {.sequence = 2, .dense = {1, 1, 1, 1}});
  EXPECT_TRUE(again.Get(next).done);
}

TEST_F(RequestPathTest, WorkerAtTheEndOfItsEpochReleasesTheOthers) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(0);
  Open(spec);
  worker(1).PullDense();
  for (uint64_t s = 1; s <= 3; ++s) Push(0, {.sequence = s, .dense = {1, 1, 1, 1}});
  const uint64_t pull = worker(0).PullDense();
  EXPECT_FALSE(worker(0).Get(pull).done);
  worker(1).EndEpoch(0);
  EXPECT_TRUE(worker(0).Get(pull).done);
}

TEST_F(RequestPathTest, StalenessIsMeasured) {
  Open(MakeSpec(2, true, 0));
  const uint64_t others = worker(0).Get(worker(0).PullDense()).others;
  for (uint64_t s = 1; s <= 4; ++s) Push(1, {.sequence = s, .dense = {0, 0, 0, 0}});
  Push(0, {.sequence = 1, .dense = {0, 0, 0, 0}, .pulled_others = others});
  const Staleness seen = job_->Report().staleness();
  EXPECT_EQ(seen.pushes(), 5u);
  EXPECT_EQ(seen.sum(), 4u);
  EXPECT_EQ(seen.max(), 4u);
}

TEST_F(RequestPathTest, PartsOfShardsElsewhereGetAnError) {
  JobSpec spec = MakeSpec(1, true, 0);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  const uint32_t away = LayoutsOf(spec)[1]->ShardOf(5);
  spec.mutable_route()->mutable_tables(1)->set_owner(away, 1);
  Open(spec);
  const Answer& answer =
      Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}, .rows = {{5, {1, 1, 1}}}, .pull_dense = true});
  ASSERT_THAT(answer.errors, SizeIs(1));
  EXPECT_EQ(answer.errors[0].status(), PART_WRONG_SHARD);
  EXPECT_EQ(answer.errors[0].shard(), away);
  EXPECT_THAT(answer.dense, ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

TEST_F(RequestPathTest, NanFailsTheJobAndChangesNothing) {
  Open(MakeSpec(2, true, 0));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Answer& answer =
      Push(1, {.sequence = 1, .dense = {1, 1, nan, 1}, .rows = {{5, {1, INFINITY, 1}}}});
  ASSERT_THAT(answer.errors, SizeIs(2));
  EXPECT_EQ(answer.errors[0].status(), PART_NOT_FINITE);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(job_->Report().rows(), 0u);
  EXPECT_THAT(job_->Report().error(),
              AllOf(HasSubstr("'w'"), HasSubstr("rank 1"), HasSubstr("NaN")));
}

TEST_F(RequestPathTest, PartOfTheWrongSizeChangesNothing) {
  Open(MakeSpec(1, true, 0));
  const Answer& answer = Push(0, {.sequence = 1, .dense = {1, 1}, .rows = {{5, {1, 1, 1}}}});
  ASSERT_THAT(answer.errors, SizeIs(1));
  EXPECT_EQ(answer.errors[0].status(), PART_BAD_SIZE);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(1, 1, 1, 1));
}

TEST_F(RequestPathTest, LearningRateFollowsFramesPerWorker) {
  JobSpec spec = MakeSpec(2, true, 0);
  LearningRateSchedule::Exponential* decay =
      spec.mutable_tables(0)->mutable_optimizer()->mutable_schedule()->mutable_exponential();
  decay->set_steps(1);
  decay->set_rate(0.5f);
  Open(spec);
  const float expected[] = {0.5f, 0.0f, -0.25f, -0.5f};  // rates 0.5, 0.5, 0.25, 0.25
  for (int i = 0; i < 4; ++i) {
    Push(i % 2, {.sequence = 1u + i / 2, .dense = {1, 1, 1, 1}});
    EXPECT_EQ(worker(0).Dense()[0], expected[i]) << i;
  }
}

TEST_F(RequestPathTest, ResultsDoNotDependOnTheNumberOfShards) {
  std::vector<Rows> results;
  for (uint32_t shards : {1u, 4u, 13u}) {
    workers_.clear();
    JobSpec spec = MakeSpec(2, false, 0, shards);
    for (int c = 0; c < 2; ++c) {
      spec.mutable_tables(1)->mutable_columns(c)->mutable_optimizer()->mutable_adam();
      spec.mutable_tables(1)->mutable_columns(c)->mutable_initializer()->mutable_uniform()->set_max(
          1);
    }
    Open(spec);
    std::mt19937 random(7);
    std::vector<uint64_t> keys;
    for (uint64_t step = 1; step <= 20; ++step) {
      for (int r = 0; r < 2; ++r) {
        Rows rows;
        for (int i = 0; i < 30; ++i) {
          keys.push_back(random() % 100);
          rows[keys.back()] = {random() % 7 - 3.0f, random() % 9 / 7.0f, 1.0f};
        }
        Push(r, {.sequence = step, .weight = 1.0 + r, .rows = rows});
      }
      for (int r = 0; r < 2; ++r) worker(r).Commit(step);
    }
    results.push_back(worker(0).Sparse(keys));
  }
  EXPECT_GT(results[0].size(), 90u);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_F(RequestPathTest, RefusesAPullWithTooManyRowsBeforeItBuildsTheAnswer) {
  JobSpec spec = MakeSpec(1, true, 0, 1);
  spec.mutable_tables(1)->mutable_columns(1)->set_dim(200'000);  // 800 KB per row
  Open(spec);
  auto code = [&](int rows, uint64_t id) {
    FrameHeader header;
    header.set_request_id(id);
    header.set_generation(1);
    header.set_last(true);
    header.mutable_pull()->set_evaluation(true);
    header.mutable_pull()->mutable_parts()->add_table(1);
    header.mutable_pull()->mutable_parts()->add_shard(0);
    header.mutable_pull()->mutable_parts()->add_rows(rows);
    worker(0).handler()->OnMessage(
        EncodeFrame(header, {Slice::FromString(std::string(rows * 8, '\0'))}));
    return worker(0).Get(id);
  };
  const Answer refused = code(84, 70);
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.message,
              AllOf(HasSubstr("84 rows"), HasSubstr("'e'"), HasSubstr("67200336 bytes"),
                    HasSubstr("limits.max_message_mib")));
}

TEST_F(RequestPathTest, WaitingPullsAreBoundedAndForgottenWithTheirStream) {
  Open(MakeSpec(2, false, 0));
  Push(0, {.sequence = 1, .dense = {2, 2, 2, 2}});
  for (size_t i = 0; i < JobLedger::kMaxParkedPerWorker; ++i) {
    EXPECT_EQ(worker(0).Get(worker(0).PullDense(1)).code, 0);
  }
  EXPECT_EQ(worker(0).Get(worker(0).PullDense(1)).code, 8);
  EXPECT_EQ(worker(1).Get(worker(1).PullDense(1)).code, 0) << "another rank has its own room";
  worker(0).Disconnect();
  TestWorker again(spec_, job_, 0);
  EXPECT_EQ(again.Get(again.PullDense(1)).code, 0);
}

// In sync a step becomes infinite when it closes, before the cut that its commit asks for begins.
TEST_F(RequestPathTest, TheJobFailsWhenAnUpdateMakesAValueInfinite) {
  for (const bool a_sync : {true, false}) {
    SCOPED_TRACE(a_sync);
    for (const bool dense : {true, false}) {
      workers_.clear();
      JobSpec spec = MakeSpec(1, a_sync, 0);
      spec.mutable_tables(0)->mutable_optimizer()->set_learning_rate(3e38f);
      spec.mutable_tables(1)->mutable_columns(1)->mutable_optimizer()->set_learning_rate(3e38f);
      Open(spec);
      TestWorker::PushArgs push{.sequence = 1};
      if (dense) push.dense = {0, 0, 10, 0};
      if (!dense) push.rows = {{41, {0, 0, 0}}, {42, {1, 0, 10}}};
      push.commit = a_sync ? 0 : 1;
      push.checkpoint = a_sync ? 0 : 3;
      const Answer& answer = Push(0, push);
      EXPECT_EQ(answer.code, static_cast<int>(absl::StatusCode::kOutOfRange));
      const HostedJob report = job_->Report();
      for (const std::string& said : {answer.message, report.error()}) {
        EXPECT_THAT(said,
                    testing::AllOf(HasSubstr(dense ? "table 'w'" : "table 'e'"),
                                   HasSubstr(dense ? "element 2 (block 0)" : "key 42 (column b)"),
                                   HasSubstr(spec.job_id())));
      }
      EXPECT_FALSE(report.has_cut());
    }
  }
}

// In sync the rows are created when the step closes, which an innocent rank's commit may do.
TEST_F(RequestPathTest, TheJobFailsWhenATableReachesMaxRows) {
  for (const bool a_sync : {true, false}) {
    SCOPED_TRACE(a_sync);
    workers_.clear();
    JobSpec spec = MakeSpec(1, a_sync, 0, /*num_shards=*/1);
    spec.mutable_tables(1)->set_max_rows(2);
    Open(spec);
    Push(0, {.sequence = 1, .rows = {{1, {1, 1, 1}}, {2, {1, 1, 1}}}, .commit = a_sync ? 0u : 1u});
    ASSERT_EQ(job_->Report().error(), "");
    EXPECT_EQ(job_->Report().rows(), 2u);
    const Answer& answer =
        Push(0, {.sequence = 2, .rows = {{3, {1, 1, 1}}}, .commit = a_sync ? 0u : 2u});
    EXPECT_EQ(answer.code, static_cast<int>(absl::StatusCode::kResourceExhausted));
    for (const std::string& said : {answer.message, job_->Report().error()}) {
      EXPECT_THAT(said, testing::AllOf(HasSubstr("table 'e'"), HasSubstr("max_rows"),
                                       HasSubstr(spec.job_id())));
    }
    EXPECT_EQ(job_->Report().rows(), 2u);
  }
}

}  // namespace
}  // namespace sluice

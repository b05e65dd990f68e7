#include "worker/data/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/worker/fakes.h"

namespace sluice {
namespace {

// Gives batches 0, 1, ... (task_id), some of which take longer to fill, and ends with `end`.
class NumberedSource : public BatchSource {
 public:
  NumberedSource(uint64_t batches, absl::Status end) : batches_(batches), end_(std::move(end)) {}
  absl::StatusOr<Fill> Next() override {
    EXPECT_FALSE(inside_.exchange(true)) << "two calls of Next at a time";
    const uint64_t i = next_++;
    inside_ = false;
    if (i >= batches_) {
      if (!end_.ok()) return end_;
      return Fill();
    }
    return Fill([this, i](PreparedBatch* prepared) -> absl::Status {
      const int running = ++running_;
      for (int most = most_; running > most && !most_.compare_exchange_weak(most, running);) {
      }
      if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      prepared->batch.Reset(0, 0);
      prepared->batch.task_id = i;
      prepared->batch.keys = {i, i + 1, i};
      --running_;
      return i == damaged_ ? absl::DataLossError("damaged") : absl::OkStatus();
    });
  }
  uint64_t dropped() const override { return 0; }
  // The fill of this batch fails.
  void Damage(uint64_t batch) { damaged_ = batch; }
  int most() const { return most_; }
  // Calls of Next, once the readers have ended.
  uint64_t asked() const { return next_; }

 private:
  const uint64_t batches_;
  const absl::Status end_;
  uint64_t damaged_ = UINT64_MAX;
  uint64_t next_ = 0;
  std::atomic<bool> inside_{false};
  std::atomic<int> running_{0}, most_{0};
};

class PrefetcherTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  PrefetcherTest() {
    context_.spec = &spec_;
    context_.model = &model_;
    context_.client = &client_;
    context_.stats = &stats_;
    spec_.mutable_config()->mutable_train()->set_prefetch_batches(2);
    spec_.mutable_config()->mutable_train()->set_reader_threads(GetParam());
  }

  FakeModel model_;
  FakeClient client_{model_, 1.0f};
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  JobContext context_;
};

TEST_P(PrefetcherTest, KeepsTheOrderOfTheSourceAndFindsUniqueKeys) {
  NumberedSource source(200, absl::OkStatus());
  Prefetcher prefetcher(context_, &source);
  for (uint64_t i = 0; i < 200; ++i) {
    const auto item = prefetcher.queue()->Pop();
    ASSERT_TRUE(item.ok() && *item != nullptr);
    EXPECT_EQ((*item)->batch.task_id, i);
    ASSERT_EQ((*item)->keys.size(), 1u);
    ASSERT_EQ((*item)->keys[0].keys.size(), 2u);
    EXPECT_EQ((*item)->row_index.size(), 3u);
    EXPECT_EQ((*item)->keys[0].keys[(*item)->row_index[2]], i);
  }
  const auto end = prefetcher.queue()->Pop();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, nullptr);
  EXPECT_LE(source.most(), static_cast<int>(GetParam()));
  if (GetParam() > 1) {
    EXPECT_GT(source.most(), 1);
  }
}

TEST_P(PrefetcherTest, FindsTheUniqueKeysOfEachSparseTable) {
  const TwoTablesModel model;
  FakeClient client(model, 1.0f);
  context_.model = &model;
  context_.client = &client;
  // Batch i has key i in the slots of "wide" and i + 1 in that of "rows", twice.
  class Source : public BatchSource {
   public:
    absl::StatusOr<Fill> Next() override {
      if (next_ == 50) return Fill();
      return Fill([i = next_++](PreparedBatch* prepared) {
        prepared->batch.Reset(0, 3);
        for (int example = 0; example < 2; ++example)
          AppendKeys({{i}, {i + 1}, {i, i + 2}}, &prepared->batch);
        return absl::OkStatus();
      });
    }
    uint64_t dropped() const override { return 0; }

   private:
    uint64_t next_ = 0;
  } source;
  Prefetcher prefetcher(context_, &source);
  for (uint64_t i = 0; i < 50; ++i) {
    const auto item = prefetcher.queue()->Pop();
    ASSERT_TRUE(item.ok() && *item != nullptr);
    const PreparedBatch& prepared = **item;
    ASSERT_EQ(prepared.keys.size(), 2u);
    EXPECT_THAT(prepared.keys[0].keys, testing::ElementsAre(i + 1));
    EXPECT_THAT(prepared.keys[1].keys, testing::UnorderedElementsAre(i, i + 2));
    EXPECT_EQ(prepared.row_index[5], 0u);
    EXPECT_EQ(prepared.keys[1].keys[prepared.row_index[4]], i);
    EXPECT_EQ(prepared.keys[1].keys[prepared.row_index[7]], i + 2);
  }
}

TEST_P(PrefetcherTest, ErrorComesAfterAllBatchesBeforeIt) {
  NumberedSource source(7, absl::DataLossError("a hole"));
  Prefetcher prefetcher(context_, &source);
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(prefetcher.queue()->Pop().ok()) << i;
  EXPECT_EQ(prefetcher.queue()->Pop().status().code(), absl::StatusCode::kDataLoss);
}

TEST_P(PrefetcherTest, ABatchThatCannotBeFilledEndsTheQueueInItsPlace) {
  for (const uint64_t damaged : {0, 1, 7, 19}) {
    NumberedSource source(20, absl::OkStatus());
    source.Damage(damaged);
    Prefetcher prefetcher(context_, &source);
    for (uint64_t i = 0; i < damaged; ++i) {
      const auto item = prefetcher.queue()->Pop();
      ASSERT_TRUE(item.ok() && *item != nullptr);
      EXPECT_EQ((*item)->batch.task_id, i);
    }
    EXPECT_EQ(prefetcher.queue()->Pop().status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST_P(PrefetcherTest, StopsAtOnceInAnyState) {
  for (int taken = 0; taken < 12; ++taken) {
    NumberedSource endless(UINT64_MAX, absl::OkStatus());
    {
      Prefetcher prefetcher(context_, &endless);
      for (int i = 0; i < taken; ++i) ASSERT_TRUE(prefetcher.queue()->Pop().ok());
    }
    // Besides the batches that were taken: a full queue, and one in the hands of each reader.
    EXPECT_LE(endless.asked(), taken + 2 + GetParam());
  }
  for (int taken = 0; taken < 12; ++taken) {
    NumberedSource source(10, absl::OkStatus());
    {
      Prefetcher prefetcher(context_, &source);
      for (int i = 0; i < taken; ++i) (void)prefetcher.queue()->Pop();
    }
    EXPECT_LE(source.asked(), 11u) << "asked again after the end";
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PrefetcherTest, ::testing::Values(1, 2, 5));

}  // namespace
}  // namespace sluice

// Ranks over shared memory that agree where they continue, without the scheduler.
#include "worker/dense/dense_recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/collective/rank_threads.h"
#include "tests/worker/fake_collective.h"
#include "worker/dense/rank_records.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kRanks = 3;

// The second table takes more than one broadcast.
TableLayouts Tables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (const uint64_t size : {3, 1200007}) {
    TableConfig* const table = tables.Add();
    table->set_name(absl::StrCat("t", size));
    table->set_kind(TableConfig::DENSE);
    table->add_shape(size);
    table->mutable_optimizer()->mutable_adam();
    table->mutable_optimizer()->set_learning_rate(0.5);
    table->set_update_at(TableConfig::COLLECTIVE);
  }
  return *CreateTableLayouts(tables, 1);
}

struct Rank {
  Rank(uint32_t rank, bool holds, Collective* collective)
      : step(Tables(), collective, /*max_bytes=*/32 << 20, /*max_tables=*/20),
        recovery(&step, rank, kRanks, holds) {
    for (const auto& table : step.replica().tables())
      gradients.emplace_back(table->elements(), 1.0f);
  }
  // Reduces the open step, with all other ranks.
  absl::Status Reduce() {
    std::vector<const float*> pointers;
    for (const std::vector<float>& gradient : gradients) pointers.push_back(gradient.data());
    step.exchange().PutRest(step.closed(), 1, pointers);
    const absl::Status reduced = step.exchange().Wait();
    if (reduced.ok()) step.SetMeansOf(step.closed());
    return reduced;
  }
  RankGroupReport Standing() const {
    RankGroupReport report;
    report.add_totals();  // of an earlier report
    recovery.AddStanding(&report);
    return report;
  }

  OpenStep step;
  DenseRecovery recovery;
  std::vector<std::vector<float>> gradients;
};

class DenseRecoveryTest : public ::testing::Test {
 protected:
  DenseRecoveryTest() : threads_("shm", kRanks) {
    for (uint32_t r = 0; r < kRanks; ++r) Begin(r, /*holds=*/true);
    threads_.Join();
    for (int step = 0; step < 2; ++step) {
      Reduce();
      for (const auto& rank : ranks_) rank->step.Close(rank->step.closed() + 1);
    }
  }
  // A new life of the rank.
  void Begin(uint32_t r, bool holds) {
    ranks_[r] = std::make_unique<Rank>(r, holds, &threads_.rank(r));
  }
  void Reduce() {
    threads_.ExpectOk([&](uint32_t r, Collective&) { return ranks_[r]->Reduce(); });
  }
  std::vector<absl::Status> Agree(uint64_t known = 0) {
    return threads_.Run([&](uint32_t r, Collective& collective) {
      return ranks_[r]->recovery.Agree(collective, known);
    });
  }
  void ExpectAgreed(uint64_t closed, bool means, uint64_t known = 0) {
    for (const absl::Status& status : Agree(known)) EXPECT_TRUE(status.ok()) << status;
    for (const auto& rank : ranks_) {
      EXPECT_EQ(rank->step.closed(), closed);
      EXPECT_EQ(rank->step.has_means(), means);
    }
    ExpectEqualTables();
  }
  void ExpectEqualTables() {
    const std::vector<absl::Span<float>> first = ranks_[0]->step.replica().Arrays();
    for (const auto& rank : ranks_) {
      const std::vector<absl::Span<float>> arrays = rank->step.replica().Arrays();
      ASSERT_EQ(arrays.size(), first.size());
      for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(arrays[i] == first[i]) << i;
      EXPECT_EQ(rank->step.replica().Counts(), ranks_[0]->step.replica().Counts());
    }
  }

  RankThreads threads_;
  std::unique_ptr<Rank> ranks_[kRanks];
};

TEST_F(DenseRecoveryTest, ARankWithoutTablesGetsThemWithTheirOptimizerStateAndCounts) {
  Begin(1, /*holds=*/false);
  ASSERT_NE(ranks_[1]->step.replica().values(1)[0], ranks_[0]->step.replica().values(1)[0]);
  ExpectAgreed(/*closed=*/2, /*means=*/false);
  Reduce();
  for (const auto& rank : ranks_) rank->step.Close(3);
  ExpectEqualTables();
  EXPECT_EQ(ranks_[1]->step.closed(), 3u);
}

TEST_F(DenseRecoveryTest, MeansOfTheOpenStepReachTheRanksThatLackThem) {
  Reduce();
  Begin(0, /*holds=*/false);
  ExpectAgreed(/*closed=*/2, /*means=*/true);
  for (const auto& rank : ranks_) rank->step.Close(3);
  ExpectEqualTables();
}

TEST_F(DenseRecoveryTest, ARankThatIsAStepBehindClosesItAndLearnsItsSums) {
  Reduce();
  ranks_[2]->step.Close(3);
  ClosedStep* const newest = ranks_[2]->recovery.newest();
  newest->steps = 3;
  newest->checkpoint = 7;
  newest->totals.resize(kRanks);
  newest->totals[1].set_examples(40);
  ExpectAgreed(/*closed=*/3, /*means=*/false);
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->recovery.newest()->steps, 3u);
    EXPECT_EQ(rank->recovery.newest()->checkpoint, 7u);
    ASSERT_EQ(rank->recovery.newest()->totals.size(), kRanks);
    EXPECT_EQ(rank->recovery.newest()->totals[1].examples(), 40u);
  }
}

TEST_F(DenseRecoveryTest, AStepThatTheSchedulerKnowsToHaveClosedIsClosed) {
  Reduce();
  ExpectAgreed(/*closed=*/3, /*means=*/false, /*known=*/3);
}

TEST_F(DenseRecoveryTest, RanksWithoutTablesCannotContinue) {
  for (uint32_t r = 0; r < kRanks; ++r) Begin(r, /*holds=*/false);
  for (const absl::Status& status : Agree()) EXPECT_TRUE(absl::IsAborted(status)) << status;
}

TEST_F(DenseRecoveryTest, AStepThatALostRankHasCommittedIsNotReducedAnew) {
  Begin(1, /*holds=*/false);
  ranks_[1]->recovery.set_committed(3);
  for (const absl::Status& status : Agree()) EXPECT_TRUE(absl::IsAborted(status)) << status;
}

TEST_F(DenseRecoveryTest, AStepClosesAsToldOnlyIfItIsTheOpenOneAndItsMeansAreHere) {
  Rank& rank = *ranks_[0];
  EXPECT_FALSE(rank.recovery.CloseAsTold(3)) << "its means are not here";
  Reduce();
  EXPECT_FALSE(rank.recovery.CloseAsTold(2));
  EXPECT_FALSE(rank.recovery.CloseAsTold(4));
  EXPECT_EQ(rank.step.closed(), 2u);
  EXPECT_TRUE(rank.recovery.CloseAsTold(3));
  EXPECT_EQ(rank.step.closed(), 3u);
  EXPECT_FALSE(rank.recovery.CloseAsTold(3));
}

TEST_F(DenseRecoveryTest, TheStandingHasSumsOnlyOfTheStepThatClosedLast) {
  Rank& rank = *ranks_[0];
  rank.recovery.newest()->steps = 1;
  rank.recovery.newest()->totals.resize(kRanks);
  EXPECT_EQ(rank.Standing().closed_steps(), 2u);
  EXPECT_FALSE(rank.Standing().has_means());
  EXPECT_EQ(rank.Standing().totals_size(), 0);
  rank.recovery.newest()->steps = 2;
  EXPECT_EQ(rank.Standing().totals_size(), static_cast<int>(kRanks));
  Reduce();
  EXPECT_TRUE(rank.Standing().has_means());
}

// A group whose other ranks hold the tables after 5 steps, and in which broadcasts may fail.
class OthersHold : public FakeCollective {
 public:
  absl::Status AllGather(absl::Span<float> values) override {
    const absl::Span<RankRecord> records(reinterpret_cast<RankRecord*>(values.data()), kRanks);
    told.push_back(records[0][0]);
    for (uint32_t r = 1; r < kRanks; ++r) records[r] = {1, 5};
    return absl::OkStatus();
  }
  absl::Status Broadcast(absl::Span<uint8_t>, uint32_t) override {
    return broadcasts-- > 0 ? absl::OkStatus() : absl::UnavailableError("rank 1 has ended");
  }
  int broadcasts = 0;
  std::vector<uint64_t> told;  // whether this rank holds the tables
};

TEST(DenseRecoveryOfOneRankTest, HoldsTheTablesOnlyOnceAllOfThemAreHere) {
  OthersHold others;
  Rank rank(0, /*holds=*/true, &others);  // but is too far behind to use them
  for (const int broadcasts : {0, 1, 4}) {
    others.broadcasts = broadcasts;
    EXPECT_TRUE(absl::IsUnavailable(rank.recovery.Agree(others, 0)));
  }
  EXPECT_THAT(others.told, ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace sluice

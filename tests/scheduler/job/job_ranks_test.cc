#include "scheduler/job/job_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kSeenAt = absl::UnixEpoch();

RankSlot Assigned(uint64_t version) {
  RankSlot slot(/*member_id=*/7, /*worker=*/3, /*incarnation=*/9);
  slot.Assign(version);
  return slot;
}

TEST(RankSlotTest, ServesUntilItIsWithdrawnAndReleased) {
  RankSlot slot = Assigned(2);
  EXPECT_EQ(slot.member_id(), 7u);
  EXPECT_EQ(slot.worker(), 3u);
  EXPECT_EQ(slot.incarnation(), 9u);
  EXPECT_TRUE(slot.serving());
  slot.Withdraw(5);
  EXPECT_FALSE(slot.serving());
  EXPECT_FALSE(slot.released());
  slot.Release();
  EXPECT_TRUE(slot.released());
}

TEST(RankSlotTest, OnlyAReportThatHasSeenTheWithdrawalConfirmsIt) {
  RankSlot slot = Assigned(2);
  EXPECT_FALSE(slot.ConfirmsStop(9)) << "nobody has asked it to stop";
  slot.Withdraw(5);
  EXPECT_FALSE(slot.ConfirmsStop(4));
  EXPECT_TRUE(slot.ConfirmsStop(5));
  slot.Release();
  EXPECT_FALSE(slot.ConfirmsStop(5)) << "a release is confirmed once";
}

TEST(RankSlotTest, AReportMadeBeforeTheAssignmentIsNotIdleness) {
  RankSlot slot = Assigned(2);
  EXPECT_EQ(slot.SeenIdle(1, kSeenAt), absl::InfiniteFuture());
  EXPECT_EQ(slot.SeenIdle(2, kSeenAt + absl::Seconds(1)), kSeenAt + absl::Seconds(1));
}

TEST(RankSlotTest, IdlenessCountsFromTheFirstIdleReport) {
  RankSlot slot = Assigned(2);
  EXPECT_FALSE(slot.has_run());
  EXPECT_EQ(slot.SeenIdle(2, kSeenAt), kSeenAt);
  EXPECT_EQ(slot.SeenIdle(2, kSeenAt + absl::Seconds(3)), kSeenAt);
  slot.SeenRunning();
  EXPECT_TRUE(slot.has_run());
  EXPECT_EQ(slot.SeenIdle(2, kSeenAt + absl::Seconds(4)), kSeenAt + absl::Seconds(4));
}

class RankCardsTest : public testing::Test {
 protected:
  static RankGroupReport Report(uint32_t rank, uint64_t incarnation, uint64_t generation,
                                const std::string& card, bool holds = false) {
    RankGroupReport report;
    report.set_rank(rank);
    report.set_incarnation(incarnation);
    report.set_generation(generation);
    report.set_card(card);
    report.set_holds_tables(holds);
    return report;
  }
  // The route has a later generation than all reports.
  bool Take(const RankGroupReport& report) { return cards_.Take(report, 10); }
  RankCards cards_;
  const std::vector<RankSlot> slots_ = {{1, 0, /*incarnation=*/10}, {2, 1, /*incarnation=*/11}};
};

TEST_F(RankCardsTest, CardsAreThereOncePresentLivesHaveThemForTheGeneration) {
  EXPECT_TRUE(Take(Report(0, 10, 3, "a")));
  EXPECT_THAT(cards_.Of(3, slots_), IsEmpty());
  EXPECT_TRUE(Take(Report(1, 11, 3, "b")));
  EXPECT_THAT(cards_.Of(3, slots_), ElementsAre("a", "b"));
  EXPECT_THAT(cards_.Of(4, slots_), IsEmpty());
  EXPECT_THAT(cards_.Of(3, {{1, 0, 10}, {3, 1, /*incarnation=*/12}}), IsEmpty());
  EXPECT_TRUE(Take(Report(1, 11, 3, ""))) << "it has met the others";
  EXPECT_THAT(cards_.Of(3, slots_), IsEmpty());
}

TEST_F(RankCardsTest, RepeatedAndOvertakenReportsChangeNothing) {
  EXPECT_TRUE(Take(Report(0, 10, 3, "a")));
  EXPECT_FALSE(Take(Report(0, 10, 3, "a")));
  EXPECT_TRUE(Take(Report(0, 10, 4, "c")));
  EXPECT_FALSE(Take(Report(0, 10, 3, "a")));
  EXPECT_FALSE(Take(Report(0, 9, 5, "z"))) << "of an earlier life";
  Take(Report(1, 11, 4, "b"));
  EXPECT_THAT(cards_.Of(4, slots_), ElementsAre("c", "b"));
}

TEST_F(RankCardsTest, ALifeHoldsTheTablesFromItsFirstWordOn) {
  EXPECT_FALSE(cards_.Holds(0, 10));
  EXPECT_TRUE(Take(Report(0, 10, 3, "a", /*holds=*/true)));
  EXPECT_FALSE(Take(Report(0, 10, 3, "a"))) << "overtaken";
  EXPECT_TRUE(cards_.Holds(0, 10));
  EXPECT_FALSE(cards_.Holds(0, 11));
  EXPECT_TRUE(Take(Report(0, 12, 3, "b")));
  EXPECT_FALSE(cards_.Holds(0, 12)) << "the next life has to get them";
}

TEST_F(RankCardsTest, TheSumsOfTheReportThatIsFurthestAheadAreKept) {
  const auto with_sums = [&](uint32_t rank, uint64_t closed_steps) {
    RankGroupReport report = Report(rank, 10 + rank, 3, "card");
    report.set_closed_steps(closed_steps);
    for (uint64_t r = 0; r < 2; ++r) {
      report.add_totals()->set_examples(100 + r);
      report.mutable_totals()->rbegin()->set_net_state("large");
    }
    return report;
  };
  const auto sums_of = [&](uint32_t rank) {
    return cards_.ReportOf(rank, slots_[rank], 3)->totals();
  };
  Take(with_sums(0, 5));
  ASSERT_EQ(sums_of(0).size(), 2);
  EXPECT_EQ(sums_of(0)[1].examples(), 101u);
  EXPECT_EQ(sums_of(0)[1].net_state(), "");
  Take(with_sums(1, 6));
  EXPECT_EQ(sums_of(0).size(), 0);
  EXPECT_EQ(sums_of(1).size(), 2);
  Take(with_sums(0, 5));
  EXPECT_EQ(sums_of(0).size(), 0);
  EXPECT_EQ(sums_of(1).size(), 2);
}

TEST_F(RankCardsTest, AGenerationThatTheRouteHasNotReachedChangesNothing) {
  RankGroupReport honest = Report(0, 10, 10, "card");
  honest.set_closed_steps(5);
  honest.add_totals()->set_examples(100);
  EXPECT_TRUE(Take(honest));
  for (const uint64_t generation : {uint64_t{11}, UINT64_MAX}) {
    RankGroupReport hostile = Report(1, 11, generation, "card", /*holds=*/true);
    hostile.add_totals()->set_examples(1);
    EXPECT_FALSE(Take(hostile));
  }
  EXPECT_EQ(cards_.ReportOf(0, slots_[0], 10)->totals_size(), 1);
  EXPECT_FALSE(cards_.Holds(1, 11));
  EXPECT_TRUE(Take(Report(1, 11, 10, "card"))) << "the same life, once it tells the truth";
  EXPECT_THAT(cards_.Of(10, slots_), ElementsAre("card", "card"));
}

class JobRanksTest : public testing::Test {
 protected:
  JobRanksTest() {
    ranks_.Add(/*member_id=*/70, /*worker=*/0, /*incarnation=*/1);
    ranks_.Add(/*member_id=*/50, /*worker=*/1, /*incarnation=*/2);
  }
  JobRanks ranks_;
};

TEST_F(JobRanksTest, ASlotIsFoundByItsMember) {
  EXPECT_EQ(ranks_.SlotOf(70), &ranks_.slots()[0]);
  EXPECT_EQ(ranks_.SlotOf(50), &ranks_.slots()[1]);
  EXPECT_EQ(ranks_.RankOf(50), 1u);
  EXPECT_EQ(ranks_.SlotOf(1), nullptr);
}

TEST_F(JobRanksTest, RanksAreReleasedWhenEverySlotIs) {
  EXPECT_TRUE(JobRanks().released()) << "no member serves a job that has not started";
  ranks_.slots()[1].Release();
  EXPECT_FALSE(ranks_.released());
  ranks_.slots()[0].Release();
  EXPECT_TRUE(ranks_.released());
}

TEST_F(JobRanksTest, ALostRankIsVacantUntilAnotherWorkerHasIt) {
  EXPECT_TRUE(ranks_.Lose(1, /*incarnation=*/3, /*begun=*/true, "killed", kSeenAt));
  EXPECT_TRUE(ranks_.is_vacant(1));
  EXPECT_EQ(ranks_.vacant().at(1).lost_incarnation, 2u);
  EXPECT_EQ(ranks_.slots()[1].incarnation(), 3u) << "the earlier life is fenced";
  EXPECT_TRUE(ranks_.slots()[1].rejoins());
  EXPECT_EQ(ranks_.SlotOf(50), nullptr);
  ranks_.Take(1, /*member_id=*/60, /*worker=*/7);
  EXPECT_EQ(ranks_.RankOf(60), 1u);
  EXPECT_TRUE(ranks_.is_vacant(1)) << "the worker has no assignment yet";
  ranks_.Settle(1, /*sequence=*/9);
  ASSERT_EQ(ranks_.ended().size(), 1u);
  EXPECT_EQ(ranks_.ended()[0].incarnation(), 2u);
  EXPECT_EQ(ranks_.ended()[0].sequence(), 9u);
  ranks_.Fill(1, /*version=*/4);
  EXPECT_FALSE(ranks_.is_vacant(1));
  EXPECT_EQ(ranks_.slots()[1].worker(), 7u);
  EXPECT_EQ(ranks_.slots()[1].incarnation(), 3u);
}

TEST_F(JobRanksTest, AWorkerThatWasOnlyTakenForARankHasNoLifeToEnd) {
  ASSERT_TRUE(ranks_.Lose(1, /*incarnation=*/3, /*begun=*/true, "killed", kSeenAt));
  ranks_.Take(1, /*member_id=*/60, /*worker=*/7);
  EXPECT_FALSE(ranks_.Lose(1, /*incarnation=*/4, /*begun=*/true, "killed", kSeenAt));
  EXPECT_EQ(ranks_.slots()[1].incarnation(), 3u);
  EXPECT_EQ(ranks_.vacant().at(1).lost_incarnation, 2u);
  EXPECT_EQ(ranks_.SlotOf(60), nullptr);
}

TEST_F(JobRanksTest, NothingOfALifeHasToBeContinuedBeforeTheAttemptRuns) {
  ASSERT_TRUE(ranks_.Lose(1, /*incarnation=*/3, /*begun=*/false, "killed", kSeenAt));
  EXPECT_TRUE(ranks_.vacant().at(1).settled);
  EXPECT_FALSE(ranks_.slots()[1].rejoins());
}

TEST_F(JobRanksTest, AWorkerOfAnEarlierSchedulerKeepsItsRank) {
  JobRanks adopted;
  adopted.AddAwaited(/*worker=*/5, /*incarnation=*/8, /*rejoins=*/true);
  EXPECT_EQ(adopted.slots()[0].member_id(), 0u);
  adopted.TakeBack(0, /*member_id=*/90, /*version=*/2);
  EXPECT_EQ(adopted.RankOf(90), 0u);
  EXPECT_EQ(adopted.slots()[0].incarnation(), 8u);
  EXPECT_TRUE(adopted.slots()[0].rejoins());
}

TEST_F(JobRanksTest, TheEndOfAnAttemptKeepsOnlyTheSlots) {
  ranks_.Lose(1, /*incarnation=*/3, /*begun=*/true, "killed", kSeenAt);
  ranks_.Settle(1, 0);
  ranks_.BeginRemoval().ranks = {1};
  EXPECT_EQ(ranks_.left_out(), 1u);
  ranks_.EndAttempt();
  EXPECT_THAT(ranks_.vacant(), IsEmpty());
  EXPECT_THAT(ranks_.ended(), IsEmpty());
  EXPECT_EQ(ranks_.removal(), nullptr);
  EXPECT_EQ(ranks_.slots().size(), 2u);
}

}  // namespace
}  // namespace sluice

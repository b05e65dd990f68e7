#include "scheduler/rank_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace sluice

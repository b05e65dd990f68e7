#include "worker/dense/group_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

constexpr uint64_t kAt = 7;  // closed steps

RankStanding Holds(uint64_t closed, bool means = false) { return {true, closed, means, 0, 0}; }
// The next life of a lost rank; an earlier one has committed so many steps.
RankStanding New(uint64_t committed = 0) { return {false, 0, false, 0, committed}; }

TEST(GroupAgreementTest, RanksThatAgreeSendNothing) {
  const auto agreement = AgreeOn({Holds(kAt), Holds(kAt), Holds(kAt)});
  ASSERT_TRUE(agreement.ok());
  EXPECT_EQ(agreement->closed, kAt);
  EXPECT_THAT(agreement->needs_tables, ElementsAre(false, false, false));
  EXPECT_EQ(agreement->means_from, std::nullopt);
  EXPECT_FALSE(agreement->closes);
}

TEST(GroupAgreementTest, ANewLifeGetsTheTablesFromTheLowestRankThatIsAhead) {
  // Rank 1 has committed the step that rank 2 knows to have closed.
  const auto agreement = AgreeOn({New(), Holds(kAt - 1, /*means=*/true), Holds(kAt), Holds(kAt)});
  ASSERT_TRUE(agreement.ok());
  EXPECT_EQ(agreement->closed, kAt);
  EXPECT_EQ(agreement->tables_from, 2u);
  EXPECT_THAT(agreement->needs_tables, ElementsAre(true, false, false, false));
  EXPECT_EQ(agreement->means_from, std::nullopt)
      << "the gradients of rank 1 are of the step before";
}

TEST(GroupAgreementTest, ARankThatCannotMakeTheUpdateGetsTheTables) {
  const auto agreement = AgreeOn({Holds(kAt), Holds(kAt - 1), Holds(kAt - 2, /*means=*/true)});
  ASSERT_TRUE(agreement.ok());
  EXPECT_THAT(agreement->needs_tables, ElementsAre(false, true, true));
}

TEST(GroupAgreementTest, GradientsThatARankHasAreUsedByAll) {
  // The lost rank may have committed the step or not: it may have had the same gradients.
  for (const uint64_t committed : {uint64_t{0}, kAt, kAt + 1}) {
    const auto agreement = AgreeOn({Holds(kAt), Holds(kAt, /*means=*/true), New(committed)});
    ASSERT_TRUE(agreement.ok()) << agreement.status();
    EXPECT_THAT(agreement->means_from, Optional(1u));
    EXPECT_THAT(agreement->needs_means, ElementsAre(true, false, true));
    EXPECT_FALSE(agreement->closes) << "not before all have committed";
  }
}

TEST(GroupAgreementTest, WithoutGradientsTheStepIsReducedAnewUnlessALostRankHasCommittedIt) {
  const auto open = AgreeOn({Holds(kAt), New(kAt)});
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->means_from, std::nullopt);
  EXPECT_TRUE(absl::IsAborted(AgreeOn({Holds(kAt), New(kAt + 1)}).status()));
}

TEST(GroupAgreementTest, AStepThatOnlyTheSchedulerKnowsToHaveClosedClosesForAll) {
  std::vector<RankStanding> ranks = {Holds(kAt, /*means=*/true), Holds(kAt), New()};
  ranks[2].known = kAt + 1;
  const auto agreement = AgreeOn(ranks);
  ASSERT_TRUE(agreement.ok());
  EXPECT_THAT(agreement->means_from, Optional(0u));
  EXPECT_TRUE(agreement->closes);
  ranks[0].means = false;
  EXPECT_TRUE(absl::IsAborted(AgreeOn(ranks).status()));
  ranks[0].means = true;
  ranks[1].known = kAt + 2;
  EXPECT_TRUE(absl::IsAborted(AgreeOn(ranks).status())) << "the ranks are too far behind";
}

TEST(GroupAgreementTest, WithoutTablesTheyCannotContinue) {
  EXPECT_TRUE(absl::IsAborted(AgreeOn({New(), New(3)}).status()));
}

}  // namespace
}  // namespace sluice

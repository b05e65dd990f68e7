// Checks each decision by itself; tests/server/replica_model_test.cc checks them together with the
// pservers.
#include "scheduler/job/follower_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using Source = FollowerPlan::Source;

HostedJob ReportedJob(uint64_t generation, std::vector<uint32_t> complete = {}) {
  HostedJob report;
  report.set_generation(generation);
  for (const uint32_t primary : complete) {
    ShardCopies* const copies = report.add_copies();
    copies->set_pserver(primary);
    copies->set_complete(true);
  }
  return report;
}

// `told`: the generation of a report that is held back; 0: it is not.
HostedJob Broken(uint64_t generation, uint64_t told = 0) {
  HostedJob report = ReportedJob(told > 0 ? told : generation);
  report.mutable_replication()->set_generation(generation);
  report.mutable_replication()->set_complete(true);
  report.mutable_replication()->set_error("the stream is over");
  return report;
}

TEST(FollowerPlanTest, EachPserverFollowsTheOneBefore) {
  EXPECT_THAT(FollowerPlan(2).followers(), ElementsAre(1, 0));
  EXPECT_THAT(FollowerPlan(3).followers(), ElementsAre(1, 2, 0));
}

TEST(FollowerPlanTest, CopiesAreUsedOnlyIfAReportOfThePresentRouteSaysThatTheyAreComplete) {
  FollowerPlan plan(3);
  EXPECT_EQ(plan.SourceOf(0, 5), Source::kNotKnown);
  EXPECT_FALSE(plan.Note(1, 5, ReportedJob(4, {0})));
  EXPECT_EQ(plan.SourceOf(0, 5), Source::kNotKnown);
  plan.Note(1, 5, ReportedJob(5));
  EXPECT_EQ(plan.SourceOf(0, 5), Source::kCheckpoint);
  plan.Note(1, 5, ReportedJob(5, {0}));
  EXPECT_EQ(plan.SourceOf(0, 5), Source::kCopies);
  EXPECT_EQ(plan.SourceOf(0, 6), Source::kNotKnown);
  EXPECT_TRUE(plan.GiveUpCopies(0, 5));
  EXPECT_FALSE(plan.GiveUpCopies(0, 5));
  EXPECT_EQ(plan.SourceOf(0, 5), Source::kCheckpoint);
}

TEST(FollowerPlanTest, APserverThatHoldsAcknowledgementsBackIsReleasedAndFollowedAgain) {
  FollowerPlan plan(2);
  // It only begins to send copies, and tries again by itself.
  HostedJob seeding = Broken(5);
  seeding.mutable_replication()->set_complete(false);
  EXPECT_FALSE(plan.Note(0, 5, seeding));
  EXPECT_FALSE(plan.Note(0, 5, Broken(4))) << "of an earlier follower";
  plan.Note(1, 5, ReportedJob(5));
  EXPECT_TRUE(plan.Note(0, 5, Broken(5)));
  EXPECT_FALSE(plan.Advance(5)) << "nobody knows of it yet";
  EXPECT_THAT(plan.followers(), ElementsAre(0, 0));
  EXPECT_EQ(plan.SourceOf(0, 6), Source::kCheckpoint);
  plan.Note(0, 6, ReportedJob(6));
  EXPECT_FALSE(plan.Advance(6)) << "the follower may still have the void copies";
  plan.Note(1, 6, ReportedJob(6));
  EXPECT_TRUE(plan.Advance(6));
  EXPECT_THAT(plan.followers(), ElementsAre(1, 0));
}

TEST(FollowerPlanTest, APserverWhoseReportIsHeldBackIsReleased) {
  FollowerPlan plan(2);
  plan.Note(0, 5, ReportedJob(5));
  plan.Note(1, 5, ReportedJob(5));
  EXPECT_TRUE(plan.Note(0, 5, Broken(5)));
  // Both ways are broken, and the route has changed before the other one said so.
  EXPECT_FALSE(plan.Note(1, 6, Broken(5, 5))) << "of the route before";
  EXPECT_TRUE(plan.Note(1, 6, Broken(6, 5)));
  EXPECT_THAT(plan.followers(), ElementsAre(0, 1));
  plan.Note(0, 7, ReportedJob(7));
  plan.Note(1, 7, ReportedJob(5));
  EXPECT_FALSE(plan.Advance(7)) << "a report that is held back says nothing of its copies";
  plan.Note(1, 7, ReportedJob(7));
  EXPECT_TRUE(plan.Advance(7));
  EXPECT_THAT(plan.followers(), ElementsAre(1, 0));
}

TEST(FollowerPlanTest, ALostFollowerVoidsItsCopiesUntilAnotherProcessHasItsPlace) {
  FollowerPlan plan(3);
  EXPECT_TRUE(plan.Lose(1, 5));
  EXPECT_THAT(plan.followers(), ElementsAre(0, 2, 0)) << "the copies of the lost one stay";
  for (const uint32_t i : {0, 1, 2}) plan.Note(i, 6, ReportedJob(6, {i == 2 ? 1u : 9u}));
  EXPECT_EQ(plan.SourceOf(1, 6), Source::kCopies);
  EXPECT_FALSE(plan.Advance(6));
  plan.Return(1);
  EXPECT_TRUE(plan.Advance(6));
  EXPECT_THAT(plan.followers(), ElementsAre(1, 2, 0));
}

TEST(FollowerPlanTest, AnEarlierSchedulersPlanContinues) {
  JobSpec spec;
  for (const uint32_t f : {1, 1, 0}) spec.add_follower(f);
  FollowerPlan plan(spec.follower());
  EXPECT_THAT(plan.followers(), ElementsAre(1, 1, 0));
  for (const uint32_t i : {0, 1, 2}) plan.Note(i, 3, ReportedJob(3));
  EXPECT_TRUE(plan.Advance(3));
  EXPECT_THAT(plan.followers(), ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace sluice

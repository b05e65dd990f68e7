#include "server/requests/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::Each;
using testing::SizeIs;

constexpr char kOther[] = "127.0.0.1:7001";

class JobViewTest : public testing::Test {
 protected:
  // Shard 2 of table 1 is on the other pserver.
  JobViewTest() : spec_(MakeSpec(3, true, 0)), layouts_(LayoutsOf(spec_)), route_(spec_.route()) {
    policy_.worker_num = 3;
    route_.add_pservers(kOther);
    route_.mutable_tables(1)->set_owner(2, 1);
  }

  JobSpec spec_;
  TableLayouts layouts_;
  UpdatePolicy policy_;
  Route route_;
};

TEST_F(JobViewTest, FirstViewHasTheShardsOfItsAddressAndEveryRank) {
  const auto here = FirstView(layouts_, policy_, route_, kSelf);
  const auto there = FirstView(layouts_, policy_, route_, kOther);
  const auto nowhere = FirstView(layouts_, policy_, route_, "127.0.0.1:7002");
  EXPECT_EQ(here->generation, 1u);
  EXPECT_THAT(here->active_ranks, SizeIs(3));
  EXPECT_THAT(here->active_ranks, Each(true));
  size_t shards = 0;
  here->ForEachShard([&](Shard*) { ++shards; });
  EXPECT_EQ(shards, 4u);
  for (uint32_t s = 0; s < 4; ++s) {
    EXPECT_EQ(here->FindShard(1, s) != nullptr, s != 2);
    EXPECT_EQ(there->FindShard(1, s) != nullptr, s == 2);
    EXPECT_EQ(nowhere->FindShard(1, s), nullptr);
  }
  EXPECT_EQ(here->FindShard(1, 3)->index(), 3u);
  EXPECT_EQ(here->FindShard(1, 3)->table().name(), "e");
}

TEST_F(JobViewTest, LaterViewSharesTheShardsAndDoesNotChangeTheEarlierOne) {
  const auto first = FirstView(layouts_, policy_, route_, kSelf);
  route_.set_generation(4);
  const auto next = NextView(*first, layouts_, route_, kSelf);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(first->generation, 1u);
  EXPECT_EQ((*next)->generation, 4u);
  EXPECT_EQ((*next)->active_ranks, first->active_ranks);
  EXPECT_EQ((*next)->shards, first->shards);
}

TEST_F(JobViewTest, RefusesARouteThatMovesAShardToOrFromHere) {
  const auto first = FirstView(layouts_, policy_, route_, kSelf);
  Route to = route_, from = route_;
  to.mutable_tables(1)->set_owner(2, 0);
  from.mutable_tables(0)->set_owner(0, 1);
  for (const Route& route : {to, from}) {
    EXPECT_EQ(NextView(*first, layouts_, route, kSelf).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  // The same moves between other pservers do not concern this one.
  const auto elsewhere = FirstView(layouts_, policy_, route_, "127.0.0.1:7002");
  EXPECT_TRUE(NextView(*elsewhere, layouts_, to, "127.0.0.1:7002").ok());
}

TEST_F(JobViewTest, RefusesARouteThatDoesNotFitTheTables) {
  const auto first = FirstView(layouts_, policy_, route_, kSelf);
  Route tables = route_, shards = route_, owner = route_;
  tables.add_tables();
  shards.mutable_tables(1)->add_owner(0);
  owner.mutable_tables(1)->set_owner(2, 2);
  for (const Route& route : {tables, shards, owner}) {
    EXPECT_EQ(NextView(*first, layouts_, route, kSelf).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice

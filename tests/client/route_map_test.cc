#include "client/route_map.h"

#include <gtest/gtest.h>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class RouteMapTest : public ::testing::Test {
 protected:
  const ShardIndex index_{TwoTables()};
  RouteMap map_{&index_};
};

TEST_F(RouteMapTest, RouteMustGiveEveryShardAListedPserver) {
  EXPECT_TRUE(CheckRoute(index_, TwoPservers()).ok());
  Route not_listed = TwoPservers();
  not_listed.mutable_tables(kRows)->set_owner(0, 2);
  const absl::Status status = CheckRoute(index_, not_listed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("'rows'"), absl::string_view::npos) << status;
}

TEST_F(RouteMapTest, OwnersAreLinksToTheRoutesAddresses) {
  EXPECT_TRUE(map_.Apply(TwoPservers(5)).generation);
  EXPECT_EQ(map_.generation(), 5u);
  ASSERT_EQ(map_.links(), 2u);
  EXPECT_EQ(map_.address(map_.owner(0)).address, "a");
  EXPECT_EQ(map_.address(map_.owner(2)).address, "b");
  EXPECT_EQ(map_.address(map_.owner(6)).address, "b");
  EXPECT_EQ(map_.Name(map_.owner(2)), "pserver 1 at b");
}

TEST_F(RouteMapTest, ALinkIsToThePserverThatTheRouteNames) {
  Route route = TwoPservers(1);
  for (const uint32_t rank : {4, 2}) route.add_pserver_ranks(rank);
  map_.Apply(route);
  EXPECT_EQ(map_.address(map_.owner(0)), PserverAddress("a", 4));
  EXPECT_EQ(map_.address(map_.owner(2)), PserverAddress("b", 2));
  // Another pserver may listen at the same address later.
  const uint32_t old_link = map_.owner(0);
  route.set_generation(2);
  route.set_pserver_ranks(0, 5);
  map_.Apply(route);
  EXPECT_NE(map_.owner(0), old_link);
  EXPECT_EQ(map_.address(map_.owner(0)), PserverAddress("a", 5));
}

TEST_F(RouteMapTest, OnlyShardsWithAnotherOwnerHaveMoved) {
  map_.Apply(TwoPservers(1));
  const RouteMap::Change same = map_.Apply(TwoPservers(1));
  EXPECT_FALSE(same.generation);
  EXPECT_EQ(same.moved, std::vector<bool>(kFlatShards, false));
  const RouteMap::Change moved = map_.Apply(RouteTo(2, {"a", "b"}, {0, 1, 1, 1, 0, 0, 0}));
  EXPECT_TRUE(moved.generation);
  EXPECT_EQ(moved.moved, (std::vector<bool>{false, true, false, false, false, false, true}));
  EXPECT_EQ(map_.applied(), 3u);
}

TEST_F(RouteMapTest, LinksThatGainShardsAndLostPserversAreKnown) {
  map_.Apply(TwoPservers(1));
  EXPECT_EQ(map_.Apply(TwoPservers(1)).gained, std::vector<bool>(2, false));
  EXPECT_EQ(map_.Apply(RouteTo(2, {"a", "b"}, {0, 1, 1, 1, 0, 0, 1})).gained,
            (std::vector<bool>{false, true}));
  EXPECT_EQ(map_.Apply(RouteTo(3, {"a", "c"}, {0, 1, 1, 1, 0, 0, 1})).gained,
            (std::vector<bool>{false, false, true}));
  EXPECT_FALSE(map_.vacant(0));
  Route route = map_.route();
  route.add_vacant(1);
  map_.Apply(route);
  EXPECT_FALSE(map_.vacant(0));
  EXPECT_FALSE(map_.vacant(1)) << "the route does not have it any more";
  EXPECT_TRUE(map_.vacant(2));
}

TEST_F(RouteMapTest, ProcessThatTakesOverARankGetsItsOwnLink) {
  map_.Apply(TwoPservers(1));
  const uint32_t old_link = map_.owner(2), other = map_.owner(0);
  const RouteMap::Change change = map_.Apply(RouteTo(2, {"a", "c"}, {0, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(map_.address(map_.owner(2)).address, "c");
  EXPECT_NE(map_.owner(2), old_link);
  EXPECT_TRUE(change.moved[2]);
  EXPECT_FALSE(map_.in_use(old_link));
  EXPECT_EQ(map_.owner(0), other) << "a link's number changed";
  EXPECT_EQ(map_.Name(old_link), "pserver ? at b");
  map_.Apply(TwoPservers(3));
  EXPECT_EQ(map_.owner(2), old_link) << "the address lost its link";
}

}  // namespace
}  // namespace sluice

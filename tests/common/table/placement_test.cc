#include "common/table/placement.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

TableLayouts MixedTables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (uint64_t rows : {30000, 10, 500}) {  // 12, 1 and 1 blocks
    TableConfig* dense = tables.Add();
    dense->set_name("dense" + std::to_string(rows));
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(rows);
    dense->add_shape(100);
    dense->mutable_optimizer()->mutable_adam();
  }
  TableConfig* sparse = tables.Add();
  sparse->set_name("sparse");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(24);
  auto* group = sparse->add_columns();
  group->set_name("deep");
  group->set_dim(8);
  group->mutable_optimizer()->mutable_adagrad();
  auto layouts = CreateTableLayouts(tables, 1);
  EXPECT_TRUE(layouts.ok()) << layouts.status();
  return *layouts;
}

std::vector<std::string> Addresses(int n) {
  std::vector<std::string> addresses;
  for (int p = 0; p < n; ++p) addresses.push_back("host" + std::to_string(p) + ":1");
  return addresses;
}

// The bytes of dense blocks on each pserver.
std::vector<uint64_t> Loads(const Route& route, const TableLayouts& tables) {
  std::vector<uint64_t> loads(static_cast<size_t>(route.pservers_size()));
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t]->sparse()) continue;
    for (uint32_t s = 0; s < tables[t]->num_shards(); ++s) {
      loads[route.tables(static_cast<int>(t)).owner(static_cast<int>(s))] +=
          tables[t]->ShardBytes(s);
    }
  }
  return loads;
}

TEST(PlacementTest, SpreadsDenseBytesToWithinTheBiggestBlock) {
  const TableLayouts tables = MixedTables();
  uint64_t biggest = 0;
  for (const auto& table : tables) {
    if (!table->sparse()) biggest = std::max(biggest, table->ShardBytes(0));
  }
  for (int n : {1, 2, 3, 5, 8}) {
    const Route route = PlaceShards(tables, Addresses(n), 7);
    EXPECT_TRUE(ValidateRoute(route, tables).ok()) << ValidateRoute(route, tables);
    EXPECT_EQ(route.generation(), 7u);
    const auto loads = Loads(route, tables);
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()) -
                  *std::min_element(loads.begin(), loads.end()),
              biggest);
  }
}

// Sparse tables have no rows yet, so neither dense tables nor other sparse ones affect the spread.
TEST(PlacementTest, ShardsOfEachSparseTableSpreadEvenly) {
  const TableLayouts all = MixedTables();
  for (const TableLayouts& tables :
       {TableLayouts{all[3]}, all, TableLayouts{all[3], all[0], all[3]}}) {
    for (int n : {1, 2, 3, 5, 7, 24, 30}) {
      const Route route = PlaceShards(tables, Addresses(n), 1);
      std::vector<int> of_all(n);
      for (size_t t = 0; t < tables.size(); ++t) {
        if (!tables[t]->sparse()) continue;
        std::vector<int> shards(n);
        for (uint32_t owner : route.tables(static_cast<int>(t)).owner()) {
          ++shards[owner];
          ++of_all[owner];
        }
        EXPECT_THAT(shards, Each(AllOf(Ge(24 / n), Le((24 + n - 1) / n)))) << n;
      }
      EXPECT_LE(*std::max_element(of_all.begin(), of_all.end()) -
                    *std::min_element(of_all.begin(), of_all.end()),
                1);
    }
  }
}

TEST(PlacementTest, DependsOnItsArgumentsAlone) {
  const Route a = PlaceShards(MixedTables(), Addresses(3), 1);
  const Route b = PlaceShards(MixedTables(), Addresses(3), 1);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(a, b));
}

TEST(PlacementTest, TiesGoToTheLowestPserver) {
  const TableLayouts all = MixedTables();
  const Route route = PlaceShards({all[1]}, Addresses(4), 1);
  EXPECT_EQ(route.tables(0).owner(0), 0u);
}

TEST(PlacementTest, MorePserversThanShardsLeaveSomeEmpty) {
  const TableLayouts all = MixedTables();
  const TableLayouts tables = {all[1]};
  EXPECT_TRUE(ValidateRoute(PlaceShards(tables, Addresses(9), 1), tables).ok());
}

// By owner in `before`: its shards that another pserver has now.
std::map<std::string, int> Moved(const Route& before, const Route& now) {
  std::map<std::string, int> moved;
  for (int t = 0; t < before.tables_size(); ++t) {
    for (int s = 0; s < before.tables(t).owner_size(); ++s) {
      const std::string& from = before.pservers(static_cast<int>(before.tables(t).owner(s)));
      const std::string& to = now.pservers(static_cast<int>(now.tables(t).owner(s)));
      if (from != to) ++moved[from];
    }
  }
  return moved;
}

TEST(MoveShardsTest, OnlyShardsOfAPserverThatIsGoneMove) {
  const TableLayouts tables = MixedTables();
  const Route before = PlaceShards(tables, Addresses(3), 1);
  Route gone = before;
  gone.set_pservers(1, "");
  const Route now = MoveShards(tables, gone, {"host0:1", "host2:1"}, 5);
  ASSERT_TRUE(ValidateRoute(now, tables).ok()) << ValidateRoute(now, tables);
  EXPECT_EQ(now.generation(), 5u);
  EXPECT_EQ(Moved(before, now).size(), 1u);
  EXPECT_GT(Moved(before, now)["host1:1"], 8);
  // Its shards are shared evenly.
  const auto loads = Loads(now, tables);
  EXPECT_LE(std::max(loads[0], loads[1]) - std::min(loads[0], loads[1]), tables[0]->ShardBytes(0));
  const auto& owners = now.tables(3).owner();
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 0u), 12);
}

TEST(MoveShardsTest, ANewPserverGetsTheShardsOfOneThatIsGone) {
  const TableLayouts tables = MixedTables();
  Route before = PlaceShards(tables, Addresses(2), 1);
  const Route moved = MoveShards(tables, before, {"host1:1", "host9:1"}, 2);
  ASSERT_TRUE(ValidateRoute(moved, tables).ok()) << ValidateRoute(moved, tables);
  EXPECT_EQ(Moved(before, moved).size(), 1u);
  EXPECT_GT(Moved(before, moved)["host0:1"], 12);
  const auto& owners = moved.tables(3).owner();
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 1u), 12);
  // With the same pservers nothing moves.
  const Route again = MoveShards(tables, moved, {"host1:1", "host9:1"}, 2);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, moved));
}

TEST(ValidateRouteTest, NamesThePartThatDoesNotFit) {
  const TableLayouts tables = MixedTables();
  const Route good = PlaceShards(tables, Addresses(2), 1);
  auto message = [&](const Route& route) {
    const absl::Status status = ValidateRoute(route, tables);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Route bad = good;
  bad.mutable_tables()->RemoveLast();
  EXPECT_THAT(message(bad), HasSubstr("3 tables"));
  bad = good;
  bad.mutable_tables(3)->add_owner(0);
  EXPECT_THAT(message(bad), AllOf(HasSubstr("'sparse'"), HasSubstr("24 shards"), HasSubstr("25")));
  bad = good;
  bad.mutable_tables(3)->set_owner(5, 2);
  EXPECT_THAT(message(bad), AllOf(HasSubstr("shard 5"), HasSubstr("'sparse'")));
  bad = good;
  bad.set_pservers(1, bad.pservers(0));
  EXPECT_THAT(message(bad), HasSubstr(bad.pservers(0)));
}

TEST(ValidateRouteTest, AnotherProcessMayHaveTheAddressOfAVacantPserver) {
  const TableLayouts tables = MixedTables();
  Route route = PlaceShards(tables, Addresses(3), 1);
  route.set_pservers(2, route.pservers(0));
  route.add_vacant(1);
  EXPECT_FALSE(ValidateRoute(route, tables).ok()) << "neither of the two is vacant";
  route.add_vacant(0);
  EXPECT_TRUE(ValidateRoute(route, tables).ok()) << ValidateRoute(route, tables);
}

}  // namespace
}  // namespace sluice

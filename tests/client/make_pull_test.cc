#include "client/make_pull.h"

#include <gtest/gtest.h>

#include "client/route_map.h"
#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class MakePullTest : public ::testing::Test {
 protected:
  // Keys 7 and 8 in shard 1, key 9 in shard 3.
  static std::shared_ptr<const KeySet> Keys() {
    auto keys = std::make_shared<KeySet>();
    keys->keys = {7, 8, 9};
    keys->offsets = {0, 0, 2, 2, 3};
    return keys;
  }
  // Returns the request to a pserver that has every shard.
  FrameHeader AskAll(PullOperation* op) {
    RouteMap routes(&index_);
    routes.Apply(RouteTo(1, {"a"}, std::vector<uint32_t>(kFlatShards, 0)));
    const Delivery delivery{std::vector<uint32_t>(kFlatShards, 0)};
    FrameHeader head;
    keys_ = op->Ask(0, 1, routes, delivery, &head);
    return head;
  }

  const ShardIndex index_{TwoTables()};
  Message keys_;
};

TEST_F(MakePullTest, AsksForShardsWithKeysAndForWholeDenseTables) {
  std::vector<float> rows(6), weights(kWeightElements);
  PullRequest request;
  request.sparse.push_back({kRows, Keys(), rows.data()});
  request.dense.push_back({kWeights, weights.data()});
  const auto op = MakePull(index_, request, {});
  ASSERT_TRUE(op.ok()) << op.status();
  const FrameHeader head = AskAll(op->get());
  const Parts& parts = head.pull().parts();
  ASSERT_EQ(parts.rows_size(), 5) << "shards 0 and 2 have no keys";
  EXPECT_EQ(parts.shard(0), 1u);
  EXPECT_EQ(parts.rows(0), 2u);
  EXPECT_EQ(parts.shard(1), 3u);
  EXPECT_EQ(parts.rows(1), 1u);
  EXPECT_EQ(parts.rows(4), kLastBlock);
  EXPECT_EQ(MessageSize(keys_), 3 * sizeof(uint64_t));
  EXPECT_EQ((*op)->Expected(1, 3)->values, rows.data() + 4) << "two keys before it";
  EXPECT_EQ((*op)->Expected(1, 6)->values, weights.data() + 2 * kBlock);
}

TEST_F(MakePullTest, RefusesRepeatedTablesAndTablesOfTheOtherKind) {
  PullRequest twice;
  twice.dense = {{kWeights, nullptr}, {kWeights, nullptr}};
  PullRequest sparse_as_dense;
  sparse_as_dense.dense = {{kRows, nullptr}};
  PullRequest dense_as_sparse;
  dense_as_sparse.sparse = {{kWeights, Keys(), nullptr}};
  PullRequest unknown;
  unknown.dense = {{2, nullptr}};
  for (const PullRequest& request : {twice, sparse_as_dense, dense_as_sparse, unknown}) {
    EXPECT_EQ(MakePull(index_, request, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(MakePullTest, BarrierAsksEveryShardAndKeepsNothing) {
  const auto op = MakeBarrier(index_, {});
  const FrameHeader head = AskAll(op.get());
  ASSERT_EQ(head.pull().parts().shard_size(), static_cast<int>(kFlatShards));
  EXPECT_EQ(head.pull().parts().rows(0), 0u);
  for (uint32_t flat = 0; flat < kFlatShards; ++flat) {
    EXPECT_EQ(op->Expected(1, flat)->values, nullptr);
  }
}

}  // namespace
}  // namespace sluice

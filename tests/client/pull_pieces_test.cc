#include "client/pull_pieces.h"

#include <gtest/gtest.h>

#include <cmath>

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

class PullReplyTest : public ::testing::Test {
 protected:
  PullReplyTest() : op_(&index_, {}) {
    routes_.Apply(TwoPservers());
    Add(0, 2, rows_);
    Add(6, kLastBlock, weights_);
    Add(2, 1, nullptr);
    const Delivery delivery{std::vector<uint32_t>(kFlatShards, 0)};
    FrameHeader head;
    for (const uint32_t link : {0, 1}) op_.Ask(link, kRequest, routes_, delivery, &head);
  }
  void Add(uint32_t flat, uint32_t rows, float* values) {
    PullOperation::Piece piece;
    piece.flat = flat;
    piece.rows = rows;
    piece.values = values;
    ASSERT_TRUE(op_.Add(std::move(piece)).ok());
  }
  // A reply with `rows` of each shard, and these values.
  DecodedReply Reply(const std::vector<std::pair<uint32_t, uint32_t>>& parts,
                     std::vector<float> values) {
    DecodedReply reply;
    reply.header.set_request_id(kRequest);
    for (const auto& [flat, rows] : parts) {
      reply.header.mutable_parts()->add_table(index_.table_of(flat).id());
      reply.header.mutable_parts()->add_shard(index_.shard_of(flat));
      reply.header.mutable_parts()->add_rows(rows);
    }
    auto owner = std::make_shared<const std::vector<float>>(std::move(values));
    reply.payload = PayloadReader({Slice(owner->data(), owner->size() * sizeof(float), owner)});
    return reply;
  }
  absl::Status Find(const DecodedReply& reply) {
    return FindDestinations(index_, reply, &op_).status();
  }

  static constexpr uint64_t kRequest = 3;
  const ShardIndex index_{TwoTables()};
  RouteMap routes_{&index_};
  PullOperation op_;
  float rows_[4] = {};
  float weights_[kLastBlock] = {};
};

TEST_F(PullReplyTest, CopiesEachPartToItsPieceAndSkipsTheRest) {
  // Shard 3 was not asked for, and the values of shard 2 are dropped.
  DecodedReply reply =
      Reply({{3, 1}, {6, kLastBlock}, {2, 1}, {0, 2}}, {9, 9, 1, 2, 3, 4, 5, 8, 8, 6, 7, 8, 9});
  const auto destinations = FindDestinations(index_, reply, &op_);
  ASSERT_TRUE(destinations.ok()) << destinations.status();
  EXPECT_FALSE((*destinations)[0].wanted);
  EXPECT_TRUE((*destinations)[2].wanted);
  ASSERT_TRUE(CopyValues(index_, *destinations, &reply.payload).ok());
  EXPECT_EQ(std::vector<float>(weights_, weights_ + kLastBlock),
            (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(std::vector<float>(rows_, rows_ + 4), (std::vector<float>{6, 7, 8, 9}));
  EXPECT_EQ(reply.payload.remaining(), 0u);
}

TEST_F(PullReplyTest, LentValuesAreCopiedAndCheckedAsTheyWereRead) {
  DecodedReply reply = Reply({{6, kLastBlock}, {0, 2}}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::vector<float> ring = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto lend = [&] {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(ring.data());
    // The frame wraps in the middle of a value.
    reply.payload = PayloadReader(
        LentMessage({Slice(bytes, 10, nullptr), Slice(bytes + 10, 9 * 4 - 10, nullptr)}));
  };
  lend();
  const auto destinations = FindDestinations(index_, reply, &op_);
  ASSERT_TRUE(destinations.ok()) << destinations.status();
  ASSERT_TRUE(CopyValues(index_, *destinations, &reply.payload).ok());
  const std::vector<float> weights(weights_, weights_ + kLastBlock), rows(rows_, rows_ + 4);
  std::fill(ring.begin(), ring.end(), NAN);  // too late: they were read
  EXPECT_EQ(weights, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(rows, (std::vector<float>{6, 7, 8, 9}));
  EXPECT_EQ(std::vector<float>(rows_, rows_ + 4), rows);
  lend();  // and now, after the header was read
  EXPECT_EQ(CopyValues(index_, *destinations, &reply.payload).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PullReplyTest, SkipsEverythingWithoutAnOperation) {
  DecodedReply reply = Reply({{0, 2}}, {1, 2, 3, 4});
  const auto destinations = FindDestinations(index_, reply, nullptr);
  ASSERT_TRUE(destinations.ok());
  ASSERT_TRUE(CopyValues(index_, *destinations, &reply.payload).ok());
  EXPECT_EQ(rows_[0], 0);
}

TEST_F(PullReplyTest, RefusesRepliesThatContradictThemselvesOrTheRequest) {
  EXPECT_EQ(Find(Reply({{0, 2}}, {1, 2, 3})).code(), absl::StatusCode::kInternal) << "too short";
  EXPECT_EQ(Find(Reply({{0, 2}}, {1, 2, 3, 4, 5})).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Find(Reply({{0, 1}}, {1, 2})).code(), absl::StatusCode::kInternal) << "two were asked";
  EXPECT_TRUE(Find(Reply({{0, 0}}, {})).ok()) << "not served";
  DecodedReply no_such_shard = Reply({{0, 2}}, {1, 2, 3, 4});
  no_such_shard.header.mutable_parts()->set_shard(0, 4);
  EXPECT_EQ(Find(no_such_shard).code(), absl::StatusCode::kInternal);
  DecodedReply columns = Reply({{0, 2}}, {1, 2, 3, 4});
  columns.header.mutable_parts()->add_rows(1);
  EXPECT_EQ(Find(columns).code(), absl::StatusCode::kInternal);
}

TEST_F(PullReplyTest, NonFiniteValueIsDataLoss) {
  DecodedReply reply = Reply({{0, 2}}, {1, NAN, 3, 4});
  const auto destinations = FindDestinations(index_, reply, &op_);
  ASSERT_TRUE(destinations.ok());
  EXPECT_EQ(CopyValues(index_, *destinations, &reply.payload).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sluice

#include "client/pull_reply.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

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

#include "client/request_table.h"

#include <gtest/gtest.h>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class RequestTableTest : public ::testing::Test {
 protected:
  RequestTableTest() {
    routes_.Apply(TwoPservers(6));
    window_.OnRoute(routes_.owners());
    window_.OnOpen(0);
    window_.OnOpen(1);
  }
  std::shared_ptr<PullOperation> Pull(const std::vector<uint32_t>& shards,
                                      PullOperation::Purpose purpose = {}) {
    auto op = std::make_shared<PullOperation>(&index_, std::move(purpose));
    for (uint32_t flat : shards) {
      PullOperation::Piece piece;
      piece.flat = flat;
      piece.rows = 1;
      EXPECT_TRUE(op->Add(std::move(piece)).ok());
    }
    return op;
  }
  void AddFrame() {
    PushFrame frame;
    frame.parts.resize(kFlatShards);
    ASSERT_TRUE(window_.Add(std::move(frame), {}).ok());
  }
  // Begins a request and returns the header of its only message.
  FrameHeader Begin(uint32_t link, std::optional<Delivery::Send> send,
                    std::shared_ptr<PullOperation> op) {
    auto messages = requests_.Begin(link, std::move(send), std::move(op));
    EXPECT_TRUE(messages.ok()) << messages.status();
    EXPECT_EQ(messages->size(), 1u);
    return DecodeFrame(messages->front())->header;
  }
  bool Wants(const PullOperation& op, uint32_t link) {
    return op.Wants(link, routes_, window_.delivery());
  }
  static ReplyHeader Refusal(uint32_t table, uint32_t shard, PartStatus status) {
    ReplyHeader header;
    PartError* const error = header.add_errors();
    error->set_table(table);
    error->set_shard(shard);
    error->set_status(status);
    return header;
  }

  const ShardIndex index_{TwoTables()};
  RouteMap routes_{&index_};
  SendWindow window_{&index_};
  RequestTable requests_{&index_, &routes_, &window_, 0};
  Garbage garbage_;
};

TEST_F(RequestTableTest, OneRequestCarriesAPushAndAPull) {
  AddFrame();
  const FrameHeader header = Begin(1, window_.Next(1), Pull({2}));
  EXPECT_EQ(header.generation(), 6u);
  EXPECT_EQ(header.push().sequence(), 1u);
  EXPECT_EQ(header.push().parts().shard_size(), 3);
  EXPECT_EQ(header.pull().parts().shard_size(), 1);
  EXPECT_TRUE(header.last());
  EXPECT_TRUE(requests_.Has(header.request_id(), 1));
  EXPECT_FALSE(requests_.Has(header.request_id(), 0));
  EXPECT_FALSE(requests_.Has(header.request_id() + 1, 1));
}

TEST_F(RequestTableTest, AnsweredPushReleasesItsFrame) {
  AddFrame();
  const uint64_t a = Begin(0, window_.Next(0), nullptr).request_id();
  const uint64_t b = Begin(1, window_.Next(1), nullptr).request_id();
  EXPECT_TRUE(requests_.Finish(a, &garbage_).status.ok());
  EXPECT_EQ(window_.size(), 1u);
  EXPECT_TRUE(requests_.Finish(b, &garbage_).status.ok());
  EXPECT_EQ(window_.size(), 0u);
  EXPECT_EQ(garbage_.size(), 1u);
  EXPECT_FALSE(requests_.Has(b, 1));
}

TEST_F(RequestTableTest, PartsMissingFromAReplyWaitForARoute) {
  const auto op = Pull({0, 1});
  const uint64_t id = Begin(0, std::nullopt, op).request_id();
  EXPECT_EQ(requests_.OperationOf(id), op);
  const RequestTable::Outcome outcome = requests_.Finish(id, &garbage_);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_TRUE(outcome.left_out);
  EXPECT_FALSE(Wants(*op, 0));
}

TEST_F(RequestTableTest, ErrorsInAllMessagesOfAReplyCount) {
  AddFrame();
  const uint64_t id = Begin(1, window_.Next(1), nullptr).request_id();
  EXPECT_NE(requests_.Note(id, Refusal(kRows, 2, PART_WRONG_SHARD)), "");
  EXPECT_NE(requests_.Note(id, Refusal(kWeights, 2, PART_STALE_INCARNATION)), "");
  EXPECT_EQ(requests_.Note(id, ReplyHeader()), "");
  EXPECT_EQ(requests_.Note(id, Refusal(kRows, 9, PART_WRONG_SHARD)), "") << "no such shard";
  EXPECT_EQ(requests_.Finish(id, &garbage_).status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(window_.delivery().needs_route());
  EXPECT_EQ(window_.delivery().acknowledged(3), 1u) << "the part without an error";
}

TEST_F(RequestTableTest, OthersAreRecordedInThePull) {
  const auto op = Pull({2});
  const uint64_t id = Begin(1, std::nullopt, op).request_id();
  ReplyHeader header;
  header.set_others(8);
  requests_.Note(id, header);
  requests_.Finish(id, &garbage_);
  EXPECT_EQ(op->others(), (std::vector<uint64_t>{0, 8}));
}

TEST_F(RequestTableTest, CheckpointInAReplyIsRecordedInThePullOnly) {
  const auto op = Pull({2});
  const uint64_t id = Begin(1, std::nullopt, op).request_id();
  ReplyHeader header;
  header.set_checkpoint(7);
  requests_.Note(id, header);
  requests_.Note(id, ReplyHeader());  // a later message of the same reply
  requests_.Finish(id, &garbage_);
  EXPECT_EQ(op->checkpoint(), 7u);

  PullOperation::Purpose purpose;
  purpose.exchange = true;
  AddFrame();
  const auto exchange = Pull({0}, std::move(purpose));
  exchange->set_after(1);
  const uint64_t push = Begin(0, window_.Next(0), exchange).request_id();
  requests_.Note(push, header);
  requests_.Finish(push, &garbage_);
  EXPECT_EQ(exchange->checkpoint(), 0u);
}

TEST_F(RequestTableTest, RefusedRequestWaitsForARoute) {
  AddFrame();
  const auto op = Pull({0});
  const uint64_t id = Begin(0, window_.Next(0), op).request_id();
  requests_.Refuse(id, &garbage_);
  EXPECT_FALSE(requests_.Has(id, 0));
  EXPECT_TRUE(window_.delivery().needs_route());
  EXPECT_FALSE(window_.Next(0).has_value());
  EXPECT_FALSE(Wants(*op, 0));
}

TEST_F(RequestTableTest, BrokenStreamLosesOnlyItsOwnRequests) {
  AddFrame();
  const auto op = Pull({0, 2});
  const uint64_t a = Begin(0, window_.Next(0), op).request_id();
  const uint64_t b = Begin(1, window_.Next(1), op).request_id();
  requests_.LoseAll(0, &garbage_);
  EXPECT_FALSE(requests_.Has(a, 0));
  EXPECT_TRUE(requests_.Has(b, 1));
  window_.OnOpen(0);
  ASSERT_TRUE(window_.Next(0).has_value()) << "sent again";
  EXPECT_TRUE(Wants(*op, 0));
  EXPECT_FALSE(Wants(*op, 1));
}

TEST_F(RequestTableTest, ExchangeAsksWithItsPush) {
  AddFrame();
  PullOperation::Purpose purpose;
  purpose.exchange = true;
  const auto op = Pull({0}, std::move(purpose));
  op->set_after(1);
  const FrameHeader header = Begin(0, window_.Next(0), op);
  EXPECT_FALSE(header.has_pull());
  EXPECT_NE(op->Expected(header.request_id(), 0), nullptr);
}

TEST_F(RequestTableTest, AbandonedOperationIsNotReturned) {
  const auto op = Pull({0});
  const uint64_t id = Begin(0, std::nullopt, op).request_id();
  op->Abandon();
  EXPECT_EQ(requests_.OperationOf(id), nullptr);
}

TEST_F(RequestTableTest, TooLongMessageIsAnErrorAndBeginsNoRequest) {
  RequestTable small(&index_, &routes_, &window_, 10);
  EXPECT_EQ(small.Begin(0, std::nullopt, Pull({0})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(small.Has(1, 0));
}

}  // namespace
}  // namespace sluice

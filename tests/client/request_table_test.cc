#include "client/request_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class EncodeRequestTest : public ::testing::Test {
 protected:
  EncodeRequestTest() {
    frame_.sequence = 4;
    frame_.weight = 2.5;
    frame_.position = {6, 70, 2, 500, 9, 1.5, 490};
    frame_.pulled_others = {0, 9};
    frame_.parts.resize(kFlatShards);
    SetPart(0, 3, 3 * 8, 3 * 8);
    SetPart(4, kBlock, 0, kBlock * 4);
    SetPart(5, kBlock, 0, kBlock * 4);
    request_.head.set_request_id(11);
    request_.head.set_generation(3);
    request_.link = 1;
  }
  void SetPart(uint32_t flat, uint32_t rows, size_t key_bytes, size_t value_bytes) {
    frame_.parts[flat].rows = rows;
    if (key_bytes > 0) frame_.parts[flat].keys = Slice::FromString(std::string(key_bytes, 'k'));
    frame_.parts[flat].values = Slice::FromString(std::string(value_bytes, 'v'));
  }
  void Push(std::vector<uint32_t> shards) {
    shards_ = std::move(shards);
    request_.frame = &frame_;
    request_.shards = &shards_;
  }
  std::vector<DecodedFrame> Encode() {
    const auto messages = EncodeRequest(index_, request_, 0);
    EXPECT_TRUE(messages.ok()) << messages.status();
    std::vector<DecodedFrame> frames;
    for (const Message& message : *messages) frames.push_back(*DecodeFrame(message));
    return frames;
  }

  const ShardIndex index_{TwoTables()};
  PushFrame frame_;
  std::vector<uint32_t> shards_;
  OutgoingRequest request_;
};

TEST_F(EncodeRequestTest, EachMessageNamesTheFrameAndOnlyTheLastThePull) {
  Push({0, 1, 4, 5});
  request_.head.mutable_pull()->mutable_parts()->add_shard(2);
  request_.head.mutable_commit()->set_sequence(4);
  request_.head.mutable_commit()->set_checkpoint(5);
  request_.head.mutable_end_epoch()->set_epoch(1);
  request_.pull_keys = {Slice::FromString(std::string(16, 'p'))};
  const std::vector<DecodedFrame> frames = Encode();
  ASSERT_EQ(frames.size(), 3u) << "cut before each block of 1 MiB";
  for (size_t i = 0; i < frames.size(); ++i) {
    const FrameHeader& header = frames[i].header;
    const bool last = i + 1 == frames.size();
    EXPECT_EQ(header.request_id(), 11u);
    EXPECT_EQ(header.generation(), 3u);
    EXPECT_EQ(header.push().sequence(), 4u);
    EXPECT_EQ(header.push().weight(), 2.5);
    EXPECT_EQ(header.push().task_id(), 6u);
    EXPECT_EQ(header.push().task_end(), 70u);
    EXPECT_EQ(header.push().pulled_others(), 9u) << "of this link";
    EXPECT_EQ(header.last(), last);
    EXPECT_EQ(header.has_pull(), last);
    EXPECT_EQ(header.has_commit(), last);
    EXPECT_EQ(header.commit().checkpoint(), last ? 5u : 0u);
    EXPECT_EQ(header.has_end_epoch(), last);
  }
  EXPECT_EQ(frames[0].header.push().parts().rows_size(), 2) << "the empty shard 1 too";
  EXPECT_EQ(frames[0].payload.remaining(), 48u);
  EXPECT_EQ(frames[2].payload.remaining(), kBlock * 4 + 16);
}

TEST_F(EncodeRequestTest, OpenFrameSetsMore) {
  Push({0});
  EXPECT_FALSE(Encode()[0].header.push().more());
  frame_.open = true;
  EXPECT_TRUE(Encode()[0].header.push().more());
}

TEST_F(EncodeRequestTest, RequestWithoutAFrameIsOneMessageWithoutAPush) {
  request_.head.mutable_commit()->set_sequence(8);
  const std::vector<DecodedFrame> frames = Encode();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_FALSE(frames[0].header.has_push());
  EXPECT_TRUE(frames[0].header.last());
}

TEST_F(EncodeRequestTest, TooLongMessageNamesTheTableWithTheLargestPart) {
  Push({0, 4});
  const auto push = EncodeRequest(index_, request_, 1000);
  EXPECT_EQ(push.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(push.status().message()), HasSubstr("'weights'"));
  OutgoingRequest pull;
  Parts* const parts = pull.head.mutable_pull()->mutable_parts();
  parts->add_table(kRows);
  parts->add_shard(3);
  parts->add_rows(1000);
  pull.pull_keys = {Slice::FromString(std::string(8000, 'p'))};
  EXPECT_TRUE(EncodeRequest(index_, pull, 9000).ok());
  const auto status = EncodeRequest(index_, pull, 5000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'rows'"));
}

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

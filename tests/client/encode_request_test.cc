#include "client/encode_request.h"

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

}  // namespace
}  // namespace sluice

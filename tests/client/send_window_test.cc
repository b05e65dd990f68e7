#include "client/send_window.h"

#include <gtest/gtest.h>

#include "client/route_map.h"
#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class SendWindowTest : public ::testing::Test {
 protected:
  SendWindowTest() {
    routes_.Apply(TwoPservers());
    window_.OnRoute(routes_.owners());
    window_.OnOpen(0);
    window_.OnOpen(1);
  }
  PushFrame Frame() const {
    PushFrame frame;
    frame.parts.resize(kFlatShards);
    return frame;
  }
  // Makes a frame with values for these shards.
  PushFrame FrameOf(std::vector<uint32_t> shards) const {
    PushFrame frame = Frame();
    for (uint32_t flat : shards) frame.parts[flat].rows = 10 + flat;
    return frame;
  }
  // Returns the shards of the next send to `link`, which must be of frame `sequence`; empty if
  // there is nothing to send.
  std::vector<uint32_t> NextOf(uint32_t link, uint64_t sequence) {
    auto send = window_.Next(link);
    if (!send.has_value()) return {};
    EXPECT_EQ(send->sequence, sequence);
    return send->shards;
  }

  const ShardIndex index_{TwoTables()};
  RouteMap routes_{&index_};
  SendWindow window_{&index_};
  Garbage garbage_;
};

using SendWindowShards = std::vector<uint32_t>;

TEST_F(SendWindowTest, KeepsAFrameUntilEveryShardHasAcknowledgedIt) {
  ASSERT_TRUE(window_.Add(FrameOf({2}), {}).ok());
  ASSERT_TRUE(window_.Add(FrameOf({3}), {}).ok());
  EXPECT_EQ(window_.unacknowledged(), 2u);
  const auto to_a = window_.Next(0), to_b = window_.Next(1);
  ASSERT_TRUE(to_a.has_value() && to_b.has_value());
  EXPECT_EQ(window_.frame(1).parts[2].rows, 12u);
  EXPECT_EQ(window_.frame(2).parts[3].rows, 13u);
  ASSERT_TRUE(window_.OnReply(*to_a, {}, &garbage_).ok());
  EXPECT_EQ(garbage_.size(), 0u);
  ASSERT_TRUE(window_.OnReply(*to_b, {}, &garbage_).ok());
  EXPECT_EQ(garbage_.size(), 1u);
  EXPECT_EQ(window_.size(), 1u);
  EXPECT_EQ(window_.frame(2).parts[3].rows, 13u) << "found by its sequence after a release";
}

TEST_F(SendWindowTest, RefusesASequenceThatDoesNotFollow) {
  PushFrame first = Frame();
  first.sequence = 8;
  ASSERT_TRUE(window_.Add(std::move(first), {}).ok()) << "the first frame may have any sequence";
  ASSERT_TRUE(window_.Add(Frame(), {}).ok());
  EXPECT_EQ(window_.last(), 9u);
  PushFrame gap = Frame();
  gap.sequence = 11;
  EXPECT_EQ(window_.Add(std::move(gap), {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(window_.size(), 2u);
  EXPECT_FALSE(window_.open());
}

TEST_F(SendWindowTest, EarlyTableIsSentExceptTheLastPartOfEachPserver) {
  ASSERT_TRUE(window_.AddEarly(kWeights, FrameOf({4, 5, 6}), {}).ok());
  EXPECT_TRUE(window_.open());
  EXPECT_EQ(NextOf(0, 1), (SendWindowShards{4, 5})) << "shards 0 and 1 are held back";
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{6}));
  ASSERT_TRUE(window_.Add(FrameOf({0, 2}), {}).ok());
  EXPECT_FALSE(window_.open());
  EXPECT_EQ(NextOf(0, 1), (SendWindowShards{0, 1}));
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{2, 3}));
  EXPECT_EQ(window_.frame(1).parts[4].rows, 14u);
  EXPECT_EQ(window_.frame(1).parts[0].rows, 10u);
}

TEST_F(SendWindowTest, LastPartOfEachPserverWaitsForTheEndOfTheFrame) {
  // All of "a" and "b" is early: one shard of each waits for the end of the frame.
  ASSERT_TRUE(window_.AddEarly(kRows, Frame(), {}).ok());
  ASSERT_TRUE(window_.AddEarly(kWeights, Frame(), {}).ok());
  EXPECT_EQ(NextOf(0, 1), (SendWindowShards{0, 1, 4}));
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{2, 3}));
  // Adding the same empty parts again changes nothing.
  ASSERT_TRUE(window_.AddEarly(kWeights, Frame(), {}).ok());
  EXPECT_EQ(NextOf(0, 1), SendWindowShards());
  EXPECT_EQ(NextOf(1, 1), SendWindowShards());
  ASSERT_TRUE(window_.Add(Frame(), {}).ok());
  EXPECT_EQ(NextOf(0, 1), (SendWindowShards{5}));
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{6}));
}

TEST_F(SendWindowTest, RefusesAPartTwice) {
  ASSERT_TRUE(window_.AddEarly(kWeights, FrameOf({4, 5, 6}), {}).ok());
  EXPECT_EQ(window_.AddEarly(kWeights, FrameOf({4, 5, 6}), {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(window_.Add(FrameOf({0, 4}), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(window_.open()) << "the refused rest changed nothing";
  EXPECT_EQ(window_.frame(1).parts[0].rows, 0u);
}

TEST_F(SendWindowTest, FrameReportsOthersAsOfItsOpening) {
  ASSERT_TRUE(window_.AddEarly(kWeights, FrameOf({4}), {3, 5}).ok());
  ASSERT_TRUE(window_.Add(Frame(), {9, 9}).ok());
  EXPECT_EQ(window_.frame(1).pulled_others, (std::vector<uint64_t>{3, 5}));
}

TEST_F(SendWindowTest, ResendsPartsLostWithAStream) {
  ASSERT_TRUE(window_.Add(Frame(), {}).ok());
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{2, 3, 6}));
  window_.OnBroken(1);
  EXPECT_EQ(NextOf(1, 1), SendWindowShards());
  window_.OnOpen(1);
  EXPECT_EQ(NextOf(1, 1), (SendWindowShards{2, 3, 6}));
}

TEST_F(SendWindowTest, SaysWhatTheShardsOfALinkHaveAcknowledged) {
  const auto told = [&](uint32_t link) {
    Hello hello;
    window_.AddAcknowledged(link, &hello);
    return hello.acknowledged();
  };
  EXPECT_TRUE(told(0).empty());
  for (const uint64_t end : {8, 16, 24}) {
    PushFrame frame = Frame();
    frame.position.task_id = 5;
    frame.position.task_end = end;
    ASSERT_TRUE(window_.Add(std::move(frame), {}).ok());
  }
  const auto first = window_.Next(0), second = window_.Next(0), to_b = window_.Next(1);
  // Shard 5 of "a" lacks the second frame.
  ASSERT_TRUE(window_.OnReply(*first, {}, &garbage_).ok());
  ASSERT_TRUE(window_.OnReply(*second, {{5, PART_OUT_OF_ORDER, 1}}, &garbage_).ok());
  ASSERT_EQ(told(0).size(), 2);
  EXPECT_EQ(told(0)[0].position().sequence(), 2u);
  EXPECT_EQ(told(0)[0].position().task_end(), 16u);
  EXPECT_EQ(told(0)[0].table_size(), 3);
  EXPECT_EQ(told(0)[1].position().sequence(), 1u);
  EXPECT_EQ(told(0)[1].position().task_end(), 8u);
  ASSERT_EQ(told(0)[1].table_size(), 1);
  EXPECT_EQ(told(0)[1].table(0), kWeights);
  EXPECT_EQ(told(0)[1].shard(0), 1u);
  EXPECT_TRUE(told(1).empty());
  // The position of a frame that was released is still known.
  ASSERT_TRUE(window_.OnReply(*to_b, {}, &garbage_).ok());
  EXPECT_EQ(window_.size(), 2u);
  ASSERT_EQ(told(1).size(), 1);
  EXPECT_EQ(told(1)[0].position().sequence(), 1u);
  EXPECT_EQ(told(1)[0].position().task_id(), 5u);
  EXPECT_EQ(told(1)[0].position().task_end(), 8u);
  EXPECT_EQ(told(1)[0].shard_size(), 3);
}

TEST(SendWindowWithoutTablesTest, ReleasesFramesAtOnce) {
  const ShardIndex index{TableLayouts()};
  SendWindow window(&index);
  ASSERT_TRUE(window.Add(PushFrame(), {}).ok());
  ASSERT_TRUE(window.Add(PushFrame(), {}).ok());
  EXPECT_EQ(window.last(), 2u);
  EXPECT_EQ(window.unacknowledged(), 0u);
  EXPECT_EQ(window.size(), 0u);
}

}  // namespace
}  // namespace sluice

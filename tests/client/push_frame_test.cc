#include "client/push_frame.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class PushFrameTest : public ::testing::Test {
 protected:
  PushFrameTest() {
    auto keys = std::make_shared<KeySet>();
    keys->keys = {7, 8, 9};
    keys->offsets = {0, 0, 2, 2, 3};
    keys_ = std::move(keys);
    request_.sparse.push_back({kRows, keys_, rows_.data()});
    request_.dense.push_back({kWeights, weights_.data()});
  }
  absl::StatusCode Code() const { return MakePushFrame(index_, request_).status().code(); }

  const ShardIndex index_{TwoTables()};
  std::shared_ptr<const KeySet> keys_;
  std::vector<float> rows_ = std::vector<float>(6, 1);
  std::vector<float> weights_ = std::vector<float>(kWeightElements, 1);
  PushRequest request_;
};

TEST_F(PushFrameTest, HasAPartForEveryShardInTheCallersArrays) {
  request_.weight = 3;
  request_.position.task_id = 4;
  request_.position.task_end = 50;
  const auto frame = MakePushFrame(index_, request_);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->weight, 3);
  EXPECT_EQ(frame->position.task_id, 4u);
  EXPECT_EQ(frame->position.task_end, 50u);
  ASSERT_EQ(frame->parts.size(), kFlatShards);
  EXPECT_EQ(frame->parts[0].rows, 0u);
  EXPECT_EQ(frame->parts[1].rows, 2u);
  EXPECT_EQ(frame->parts[3].rows, 1u);
  EXPECT_EQ(frame->parts[6].rows, kLastBlock);
  EXPECT_EQ(frame->parts[3].keys.data(), reinterpret_cast<const uint8_t*>(&keys_->keys[2]));
  EXPECT_EQ(frame->parts[3].values.data(), reinterpret_cast<const uint8_t*>(&rows_[4]));
  EXPECT_EQ(frame->parts[5].values.data(), reinterpret_cast<const uint8_t*>(&weights_[kBlock]));
}

TEST_F(PushFrameTest, RefusesNonFiniteGradients) {
  rows_[5] = NAN;
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  rows_[5] = 1;
  weights_.back() = INFINITY;
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  weights_.back() = 1;
  EXPECT_EQ(Code(), absl::StatusCode::kOk);
}

TEST_F(PushFrameTest, RefusesRepeatedTablesAndTablesOfTheOtherKind) {
  const PushRequest good = request_;
  request_.dense.push_back({kWeights, weights_.data()});
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  request_ = good;
  request_.sparse[0].table = kWeights;
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  request_ = good;
  request_.dense[0].table = kRows;
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  request_.dense[0] = {kWeights, nullptr};
  EXPECT_EQ(Code(), absl::StatusCode::kOk) << "nothing for this table";
}

}  // namespace
}  // namespace sluice

#include "server/requests/reply_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t kRequest = 5;

class ReplyWriterTest : public testing::Test {
 protected:
  // Adds a part of table 1 whose values are all `value`. A row has three of them.
  void AddRows(uint32_t shard, uint32_t rows, float value) {
    const std::vector<float> values(rows * 3, value);
    const size_t bytes = values.size() * sizeof(float);
    std::memcpy(writer_.AddPart(1, shard, rows, bytes), values.data(), bytes);
  }
  // Adds a part of table 0 whose values the shard lends.
  void Lend(const std::vector<float>& values) {
    const auto owner = std::make_shared<std::vector<float>>(values);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(owner->data());
    writer_.AddPart(0, 0, static_cast<uint32_t>(values.size()),
                    Slice(bytes, values.size() * sizeof(float), owner));
  }
  const Answer& answer() { return stream_->answers[kRequest]; }

  std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
  ReplyWriter writer_{stream_, kRequest};
};

TEST_F(ReplyWriterTest, PartsKeepTheirOrderWhetherCopiedOrLent) {
  writer_.Expect(1000);
  AddRows(/*shard=*/2, /*rows=*/1, 0.5f);
  Lend({1, 2});
  AddRows(/*shard=*/0, /*rows=*/2, 0.25f);
  EXPECT_EQ(stream_->answers.count(kRequest), 0u) << "all of it fits in one message";
  writer_.Finish(/*generation=*/3, /*others=*/7, /*checkpoint=*/9);
  EXPECT_TRUE(answer().done);
  EXPECT_EQ(answer().messages, 1u);
  EXPECT_EQ(answer().code, 0);
  EXPECT_EQ(answer().generation, 3u);
  EXPECT_EQ(answer().others, 7u);
  EXPECT_EQ(answer().checkpoint, 9u);
  EXPECT_THAT(answer().dense, ElementsAre(1, 2));
  EXPECT_THAT(answer().sparse,
              ElementsAre(0.5f, 0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f));
  EXPECT_THAT(answer().sparse_parts, ElementsAre(Pair(2, 1), Pair(0, 2)));
}

TEST_F(ReplyWriterTest, MessagesEndAtPartBorders) {
  const uint32_t rows =
      ReplyWriter::kBytesAChunk / (3 * sizeof(float)) / 2;  // almost half a message
  for (uint32_t shard = 0; shard < 4; ++shard) AddRows(shard, rows, 1);
  AddRows(4, 3 * rows, 1);  // larger than a message
  AddRows(5, 1, 1);
  writer_.Finish(1, 0);
  EXPECT_TRUE(answer().done);
  EXPECT_EQ(answer().messages, 4u);
  EXPECT_THAT(answer().sparse_parts, ElementsAre(Pair(0, rows), Pair(1, rows), Pair(2, rows),
                                                 Pair(3, rows), Pair(4, 3 * rows), Pair(5, 1)));
  EXPECT_THAT(answer().sparse, SizeIs((7 * rows + 1) * 3));
  EXPECT_TRUE(std::all_of(answer().sparse.begin(), answer().sparse.end(),
                          [](float value) { return value == 1; }));
}

TEST_F(ReplyWriterTest, KeepsTheFirstErrorOfAPart) {
  writer_.AddError(1, 2, PART_OUT_OF_ORDER, 4);
  writer_.AddError(1, 2, PART_BAD_SIZE, 5);
  writer_.AddError(0, 2, PART_BAD_SIZE, 6);
  EXPECT_TRUE(writer_.has_error(PART_OUT_OF_ORDER));
  EXPECT_FALSE(writer_.has_error(PART_NOT_FINITE));
  writer_.Finish(1, 0);
  ASSERT_EQ(answer().errors.size(), 2u);
  EXPECT_EQ(answer().errors[0].status(), PART_OUT_OF_ORDER);
  EXPECT_EQ(answer().errors[0].last_sequence(), 4u);
  EXPECT_EQ(answer().errors[1].table(), 0u);
}

TEST_F(ReplyWriterTest, ARefusalSendsNoValues) {
  AddRows(0, 1, 1);
  writer_.Refuse(absl::NotFoundError("no such job"), /*generation=*/2);
  EXPECT_TRUE(answer().done);
  EXPECT_EQ(answer().code, static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(answer().message, "no such job");
  EXPECT_EQ(answer().generation, 2u);
  EXPECT_TRUE(answer().sparse.empty());
}

}  // namespace
}  // namespace sluice

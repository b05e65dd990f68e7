#include "model/features/batch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// Two examples of one number and two slots; slot 1 of the second has two keys.
Batch TwoExamples() {
  Batch batch;
  batch.Reset(1, 2);
  batch.n = 2;
  batch.label = {1, 0};
  batch.weight = {1, 3};
  batch.numeric = {0.5f, -0.5f};
  batch.keys = {10, 20, 21, 22};
  batch.key_offsets = {0, 1, 1, 2, 4};
  return batch;
}

TEST(BatchTest, AppendCopiesOneExampleWithItsKeys) {
  const Batch from = TwoExamples();
  Batch to;
  to.Reset(1, 2);
  ASSERT_TRUE(to.Append(from, 1, 77).ok());
  ASSERT_TRUE(to.Append(from, 0, 78).ok());
  EXPECT_EQ(to.n, 2u);
  EXPECT_THAT(to.label, ElementsAre(0, 1));
  EXPECT_THAT(to.weight, ElementsAre(3, 1));
  EXPECT_THAT(to.numeric, ElementsAre(-0.5f, 0.5f));
  EXPECT_THAT(to.keys, ElementsAre(20, 21, 22, 10));
  EXPECT_THAT(to.key_offsets, ElementsAre(0, 1, 3, 4, 4));
  EXPECT_THAT(to.example_id, ElementsAre(77, 78));
}

TEST(BatchTest, WeightsOfKeysAreOneWhereABatchHasNone) {
  const Batch plain = TwoExamples();
  Batch weighted = TwoExamples();
  weighted.key_weights = {0.5f, 2, 3, 4};
  Batch to;
  to.Reset(1, 2);
  ASSERT_TRUE(to.Append(plain, 0, 1).ok());
  EXPECT_TRUE(to.key_weights.empty());
  ASSERT_TRUE(to.Append(weighted, 1, 2).ok());
  EXPECT_THAT(to.key_weights, ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(to.Append(plain, 0, 3).ok());
  EXPECT_THAT(to.key_weights, ElementsAre(1, 2, 3, 4, 1));
  to.Reset(1, 2);
  EXPECT_TRUE(to.key_weights.empty());
}

TEST(BatchTest, AppendWorksWithoutSlotsAndWithoutNumbers) {
  Batch from, to;
  from.Reset(0, 0);
  from.n = 1;
  from.label = {1};
  from.weight = {2};
  to.Reset(0, 0);
  ASSERT_TRUE(to.Append(from, 0, 5).ok());
  EXPECT_EQ(to.n, 1u);
  EXPECT_THAT(to.key_offsets, ElementsAre(0));
  EXPECT_TRUE(to.keys.empty());
}

TEST(BatchTest, ImpossibleOffsetsOfAMappedFileAreRefusedAndChangeNothing) {
  const Batch whole = TwoExamples();
  const std::string file = "/cache/a.examples";
  const std::vector<std::vector<uint32_t>> offsets = {{0, 1, 5},           // past the last key
                                                      {2, 1, 3},           // falls at once
                                                      {0, 3, 2},           // falls
                                                      {0, 3000000000, 2},  // and so far
                                                      {3000000000, 3000000001, 3000000002},
                                                      {4, 4, 5}};
  for (const std::vector<uint32_t>& own : offsets) {
    ExampleView view = whole.view();
    view.key_offsets = own.data();
    view.file = &file;
    Batch to;
    to.Reset(1, 2);
    ASSERT_TRUE(to.Append(whole, 1, 77).ok());
    const absl::Status status = to.Append(view, 0, 78);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(file));
    EXPECT_EQ(to.n, 1u);
    EXPECT_THAT(to.label, ElementsAre(0));
    EXPECT_THAT(to.keys, ElementsAre(20, 21, 22));
    EXPECT_THAT(to.key_offsets, ElementsAre(0, 1, 3));
  }
}

TEST(BatchTest, ResetEmptiesEverything) {
  Batch batch = TwoExamples();
  batch.first_position = 3;
  batch.chunk = 8;
  batch.task_id = 1;
  batch.task_end = 2;
  batch.Reset(3, 1);
  EXPECT_EQ(batch.n, 0u);
  EXPECT_EQ(batch.num_numeric, 3u);
  EXPECT_EQ(batch.num_slots, 1u);
  EXPECT_TRUE(batch.label.empty() && batch.weight.empty() && batch.numeric.empty() &&
              batch.keys.empty());
  EXPECT_THAT(batch.key_offsets, ElementsAre(0));
  EXPECT_EQ(batch.first_position + batch.chunk + batch.task_id + batch.task_end, 0u);
}

}  // namespace
}  // namespace sluice

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
  to.Append(from, 1, 77);
  to.Append(from, 0, 78);
  EXPECT_EQ(to.n, 2u);
  EXPECT_THAT(to.label, ElementsAre(0, 1));
  EXPECT_THAT(to.weight, ElementsAre(3, 1));
  EXPECT_THAT(to.numeric, ElementsAre(-0.5f, 0.5f));
  EXPECT_THAT(to.keys, ElementsAre(20, 21, 22, 10));
  EXPECT_THAT(to.key_offsets, ElementsAre(0, 1, 3, 4, 4));
  EXPECT_THAT(to.example_id, ElementsAre(77, 78));
}

TEST(BatchTest, AppendWorksWithoutSlotsAndWithoutNumbers) {
  Batch from, to;
  from.Reset(0, 0);
  from.n = 1;
  from.label = {1};
  from.weight = {2};
  to.Reset(0, 0);
  to.Append(from, 0, 5);
  EXPECT_EQ(to.n, 1u);
  EXPECT_THAT(to.key_offsets, ElementsAre(0));
  EXPECT_TRUE(to.keys.empty());
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

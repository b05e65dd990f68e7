#include "python/core/slot_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Values of the slot are in rows 1, 0 and 1 of a table of 3 rows with 4 floats; the collection has
// floats 1 and 2 of them.
class SlotColumnsTest : public ::testing::Test {
 protected:
  const std::vector<int64_t> rows_ = {1, 0, 1};
  const SlotColumns at_{rows_.data(), rows_.size(), /*row_dim=*/4, /*first=*/1, /*dim=*/2};
  std::vector<float> table_ = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};
};

TEST_F(SlotColumnsTest, CopiesTheColumnsInTheOrderOfTheValues) {
  std::vector<float> to(6);
  CopySlotRows(table_.data(), at_, to.data());
  EXPECT_THAT(to, ElementsAre(11, 12, 1, 2, 11, 12));
}

TEST_F(SlotColumnsTest, GradientsOfEqualValuesAddUpAndOtherColumnsStay) {
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(AddSlotGradients(gradients.data(), at_, table_.data()), -1);
  EXPECT_THAT(table_, ElementsAre(0, 4, 6, 3, 10, 17, 20, 13, 20, 21, 22, 23));
}

TEST_F(SlotColumnsTest, NothingIsAddedWhenAGradientIsNotFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    // At every place, since sums are made in several lanes.
    const std::vector<int64_t> rows(21, 2);
    const SlotColumns at{rows.data(), rows.size(), 4, 1, 2};
    for (size_t i = 0; i < 2 * rows.size(); ++i) {
      std::vector<float> gradients(2 * rows.size(), std::numeric_limits<float>::max());
      gradients[i] = bad;
      std::vector<float> table(12, 7);
      EXPECT_EQ(AddSlotGradients(gradients.data(), at, table.data()), static_cast<int64_t>(i / 2));
      EXPECT_THAT(table, Each(7));
    }
  }
}

TEST_F(SlotColumnsTest, ASlotWithoutValuesIsNoError) {
  const SlotColumns none{nullptr, 0, 4, 1, 2};
  CopySlotRows(table_.data(), none, nullptr);
  EXPECT_EQ(AddSlotGradients(nullptr, none, table_.data()), -1);
}

}  // namespace
}  // namespace sluice

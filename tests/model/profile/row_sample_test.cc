#include "model/profile/row_sample.h"

#include <gmock/gmock.h>

#include <random>

namespace sluice {
namespace {

TEST(RowSampleTest, ATableOfFewRowsIsKept) {
  RowSample rows;
  rows.Add({"a", "", "b"});
  rows.Add({"c"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.Cell(0, 0), "a");
  EXPECT_EQ(rows.Cell(0, 1), "");
  EXPECT_EQ(rows.Cell(0, 2), "b");
  EXPECT_EQ(rows.Cell(1, 2), "");
}

TEST(RowSampleTest, TheSampleIsUniform) {
  RowSample rows;
  const size_t n = 5 * RowSample::kMostRows;
  for (size_t i = 0; i < n; ++i) {
    const std::string cell = std::to_string(i);
    rows.Add({cell});
  }
  ASSERT_EQ(rows.size(), RowSample::kMostRows);
  double sum = 0;
  for (size_t r = 0; r < rows.size(); ++r) sum += std::stod(std::string(rows.Cell(r, 0)));
  EXPECT_NEAR(sum / static_cast<double>(rows.size()) / static_cast<double>(n), 0.5, 0.01);
}

TEST(RowSampleTest, LongRowsAfterManyShortOnesDoNotOutgrowTheMemory) {
  RowSample rows;
  const std::string number = "1", one = std::string(RowSample::kMostCellBytes, 'x'),
                    longer = one + "y";
  for (size_t i = 0; i < RowSample::kMostRows; ++i) rows.Add({number});
  const std::vector<std::string_view> cells(16, longer);
  for (size_t i = 0; i < RowSample::kMostRows; ++i) rows.Add(cells);
  size_t bytes = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < cells.size(); ++c) bytes += rows.Cell(r, c).size();
    if (rows.Cell(r, 1).size() > 1) {
      EXPECT_EQ(rows.Cell(r, 1), one);
    }
  }
  EXPECT_LE(bytes, RowSample::kMostBytes);
  EXPECT_GT(bytes, RowSample::kMostBytes / 2);
}

TEST(RowSampleTest, AValueThatAllRowsHaveTellsNothingOfAlternatingLabels) {
  RowSample rows;
  std::vector<int> labels;
  const std::string same = "k";
  for (int i = 0; i < 2000; ++i) {
    labels.push_back(i % 2);
    rows.Add({same});
  }
  EXPECT_NEAR(rows.AucOf(0, false, labels), 0.5, 0.05);
}

TEST(RowSampleTest, AucIsThatOfAllPairs) {
  RowSample rows;
  std::vector<int> labels;
  std::mt19937_64 random(1);
  std::vector<double> values;
  for (int i = 0; i < 300; ++i) {
    labels.push_back(static_cast<int>(random() % 3) - 1);
    values.push_back(static_cast<double>(random() % 20 + (labels.back() == 1 ? 5 : 0)));
    const std::string cell = std::to_string(values.back());
    rows.Add({cell});
  }
  double better = 0, pairs = 0;
  for (size_t p = 0; p < labels.size(); ++p) {
    for (size_t n = 0; n < labels.size(); ++n) {
      if (labels[p] != 1 || labels[n] != 0) continue;
      ++pairs;
      better += values[p] > values[n] ? 1 : values[p] == values[n] ? 0.5 : 0;
    }
  }
  EXPECT_NEAR(rows.AucOf(0, true, labels), better / pairs, 1e-12);
  EXPECT_EQ(rows.AucOf(0, true, std::vector<int>(300, 1)), 0);
}

TEST(RowSampleTest, CategoriesAreJudgedByOtherRows) {
  RowSample rows;
  std::vector<int> labels;
  std::mt19937_64 random(2);
  for (int i = 0; i < 4000; ++i) {
    labels.push_back(static_cast<int>(random() % 2));
    const std::string telling = labels.back() ? "yes" : "no", unique = std::to_string(i);
    rows.Add({telling, unique});
  }
  EXPECT_EQ(rows.AucOf(0, false, labels), 1);
  // A value that occurs once tells nothing.
  EXPECT_NEAR(rows.AucOf(1, false, labels), 0.5, 0.03);
}

}  // namespace
}  // namespace sluice

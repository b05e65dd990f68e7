#include "model/data/column_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// label, weight, two features, the id_column
const std::vector<std::string> kNeeded = {"y", "w", "age", "", "id"};

std::string Refusal(const std::vector<std::string>& names, bool need_label = true) {
  const auto bound = BindColumns(kNeeded, names, need_label, "data file F", 4);
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(bound.status().message());
}

TEST(ColumnBindingTest, ColumnsAreFoundWhereverTheyStand) {
  const auto bound = BindColumns(kNeeded, {"id", "age", "other", "w", "y"}, true, "data file F", 4);
  ASSERT_TRUE(bound.ok());
  EXPECT_THAT(*bound, ElementsAre(4, 3, 1, -1, 0));
}

TEST(ColumnBindingTest, PredictionMayLackOnlyLabelAndWeight) {
  const auto bound = BindColumns(kNeeded, {"id", "age"}, false, "data file F", 4);
  ASSERT_TRUE(bound.ok());
  EXPECT_THAT(*bound, ElementsAre(-1, -1, 1, -1, 0));
  EXPECT_THAT(Refusal({"id"}, false), HasSubstr("\"age\""));
}

TEST(ColumnBindingTest, MissingColumnIsNamedWithItsRole) {
  EXPECT_THAT(Refusal({"w", "age", "id"}), AllOf(HasSubstr("\"y\""), HasSubstr("label")));
  EXPECT_THAT(Refusal({"y", "age", "id"}), AllOf(HasSubstr("\"w\""), HasSubstr("weight")));
  EXPECT_THAT(Refusal({"y", "w", "id"}), AllOf(HasSubstr("\"age\""), HasSubstr("feature")));
  EXPECT_THAT(Refusal({"y", "w", "age"}), AllOf(HasSubstr("\"id\""), HasSubstr("id_column")));
}

TEST(ColumnBindingTest, ClosestNameThatIsNotTakenIsSuggested) {
  EXPECT_THAT(Refusal({"y", "w", "aeg", "id"}), HasSubstr("\"aeg\""));
  EXPECT_THAT(Refusal({"y", "w", "zzzzzz", "id"}), Not(HasSubstr("did you mean")));
}

TEST(ColumnBindingTest, RepeatedColumnIsRefusedAndManyNamesShortened) {
  EXPECT_THAT(Refusal({"y", "w", "age", "age", "id"}), HasSubstr("\"age\""));
  std::vector<std::string> many = {"y", "w", "id"};
  for (int i = 0; i < 500; ++i) many.push_back("column_" + std::string(200, 'x'));
  const std::string message = Refusal(many);
  EXPECT_THAT(message, HasSubstr("503 columns"));
  EXPECT_LT(message.size(), 10000u);
}

}  // namespace
}  // namespace sluice

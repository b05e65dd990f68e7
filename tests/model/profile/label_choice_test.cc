#include "model/profile/label_choice.h"

#include <gmock/gmock.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TableProfile TableOf(const std::string& text) {
  const TempFolder folder;
  auto table = ProfileTable({folder.Write("data.csv", text)}, ProfileLimits(), Env::Real());
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

// Rows of `header`, from cells of row i.
std::string Text(const std::string& header, const std::function<std::string(int)>& row) {
  std::string text = header + "\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, row(i), "\n");
  return text;
}

TEST(LabelChoiceTest, NamesAndPlacesDecide) {
  const auto named = TableOf(Text("click,sex,x", [](int i) {
    return absl::StrCat(i % 10 == 0, ",", i % 2 ? "m" : "f", ",", i);
  }));
  const auto label = ChooseLabel(named, "");
  ASSERT_TRUE(label.ok()) << label.status();
  EXPECT_EQ(label->column, 0u);
  EXPECT_THAT(label->positive, ElementsAre());
  EXPECT_DOUBLE_EQ(label->positive_share, 0.1);
  EXPECT_THAT(label->others, ElementsAre("sex"));
  // Adult's: the last of two, whose test file ends labels with dots.
  const auto adult = TableOf(Text("sex,x,income", [](int i) {
    return absl::StrCat(i % 2 ? "m" : "f", ",", i, ",", i % 4 == 0 ? ">50K" : "<=50K",
                        i % 3 == 0 ? "." : "");
  }));
  const auto income = ChooseLabel(adult, "");
  ASSERT_TRUE(income.ok()) << income.status();
  EXPECT_EQ(income->column, 2u);
  EXPECT_THAT(income->positive, UnorderedElementsAre(">50K", ">50K."));
  EXPECT_THAT(income->negative, UnorderedElementsAre("<=50K", "<=50K."));
}

TEST(LabelChoiceTest, RatingsAreCutInHalves) {
  const auto table = TableOf(Text(
      "user,item,rating", [](int i) { return absl::StrCat(i % 9, ",", i % 13, ",", 1 + i % 5); }));
  const auto label = ChooseLabel(table, "");
  ASSERT_TRUE(label.ok()) << label.status();
  EXPECT_TRUE(label->has_threshold);
  EXPECT_TRUE(label->threshold == 3 || label->threshold == 4);
  EXPECT_EQ(label->LabelOf("5"), 1);
  EXPECT_EQ(label->LabelOf("1"), 0);
  EXPECT_EQ(label->LabelOf("?"), -1);
}

TEST(LabelChoiceTest, AFlagSaysColumnAndValue) {
  const auto table = TableOf(
      Text("grade,minutes,x", [](int i) { return absl::StrCat("g", i % 3, ",", i, ",", i % 7); }));
  EXPECT_EQ(ChooseLabel(table, "minutes>=15")->threshold, 15);
  EXPECT_DOUBLE_EQ(ChooseLabel(table, "minutes>=15")->positive_share, 0.85);
  EXPECT_THAT(ChooseLabel(table, "grade=g1")->positive, ElementsAre("g1"));
  EXPECT_EQ(ChooseLabel(table, "minutes")->threshold, 50);
  const auto error = [&](const std::string& wanted) {
    const auto label = ChooseLabel(table, wanted);
    EXPECT_EQ(label.status().code(), absl::StatusCode::kInvalidArgument) << wanted;
    return std::string(label.status().message());
  };
  EXPECT_THAT(error("minuets"), AllOf(HasSubstr("no column"), HasSubstr("minutes")));
  EXPECT_THAT(error("grade"), HasSubstr("=VALUE"));
  EXPECT_THAT(error("grade=g9"), HasSubstr("does not hold"));
  EXPECT_THAT(error("grade>=2"), HasSubstr("no numbers"));
  EXPECT_THAT(error(""), HasSubstr("no column has two values"));
}

TEST(LabelChoiceTest, EquallyGoodColumnsAreRefused) {
  const auto table = TableOf(
      Text("x,a,b,y0", [](int i) { return absl::StrCat(i, ",", i % 2, ",", i / 50, ",", i % 3); }));
  const auto label = ChooseLabel(table, "");
  ASSERT_FALSE(label.ok());
  EXPECT_THAT(std::string(label.status().message()),
              AllOf(HasSubstr("a and b"), HasSubstr("--label")));
}

}  // namespace
}  // namespace sluice

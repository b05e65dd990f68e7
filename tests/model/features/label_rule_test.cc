#include "model/features/label_rule.h"

#include <map>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<LabelRule> Rule(const std::string& data) {
  DataConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(data, &config));
  return LabelRule::Create(config);
}

// 0 or 1, or -1 for a refused cell.
int Label(const std::string& data, std::string_view cell) {
  const auto rule = Rule(data);
  EXPECT_TRUE(rule.ok()) << rule.status();
  float label = -1;
  int value = -1;
  return rule->Apply(cell, &label, &value).ok() ? static_cast<int>(label) : -1;
}

// The index of the cell in the lists of values.
int ValueOf(const std::string& data, std::string_view cell) {
  float label = -1;
  int value = -2;
  Rule(data)->Apply(cell, &label, &value).IgnoreError();
  return value;
}

TEST(LabelRuleTest, ListsOfValues) {
  const std::string adult =
      "label { column: 'l' positive: '>50K' positive: '>50K.' negative: '<=50K' }";
  EXPECT_EQ(Label(adult, ">50K"), 1);
  EXPECT_EQ(Label(adult, ">50K."), 1);
  EXPECT_EQ(Label(adult, "<=50K"), 0);
  EXPECT_EQ(Label(adult, "<=50K."), -1);
  EXPECT_EQ(ValueOf(adult, ">50K."), 1);
  EXPECT_EQ(ValueOf(adult, "<=50K"), 2);
  EXPECT_EQ(ValueOf(adult, "<=50K."), -1);
}

TEST(LabelRuleTest, NumbersAreComparedByValue) {
  const std::string rule = "label { positive: '1' positive: 'yes' negative: '0' }";
  for (const char* cell : {"1", "1.0", "+1", "1e0", "yes"}) EXPECT_EQ(Label(rule, cell), 1) << cell;
  for (const char* cell : {"0", "0.0", "-0"}) EXPECT_EQ(Label(rule, cell), 0) << cell;
  for (const char* cell : {"2", "10", "1.0x", "YES"}) EXPECT_EQ(Label(rule, cell), -1) << cell;
  EXPECT_EQ(ValueOf(rule, "1.0"), 0);
  EXPECT_EQ(ValueOf(rule, "0.0"), 2);
  EXPECT_EQ(Label("label { positive: '1' } csv { decimal_mark: ',' }", "1,0"), 1);
}

TEST(LabelRuleTest, PositiveAloneMakesEveryOtherValueNegative) {
  EXPECT_EQ(Label("label { positive: 'yes' }", "yes"), 1);
  EXPECT_EQ(Label("label { positive: 'yes' }", "whatever"), 0);
  EXPECT_EQ(ValueOf("label { positive: 'yes' }", "whatever"), -1);
  EXPECT_EQ(ValueOf("label { positive: 'yes' }", "yes"), 0);
}

TEST(LabelRuleTest, WithoutRuleTheColumnHoldsZeroOrOne) {
  EXPECT_EQ(Label("format: CSV", "0"), 0);
  EXPECT_EQ(Label("format: CSV", "1"), 1);
  EXPECT_EQ(Label("format: CSV", "1.0"), 1);
  EXPECT_EQ(Label("format: CSV", "-1"), -1);
  EXPECT_EQ(Label("format: CSV", "2"), -1);
  EXPECT_EQ(Label("format: CSV", "yes"), -1);
}

TEST(LabelRuleTest, LibsvmLabelsMayBeSigned) {
  EXPECT_EQ(Label("format: LIBSVM", "-1"), 0);
  EXPECT_EQ(Label("format: LIBSVM", "+1"), 1);
  EXPECT_EQ(Label("format: LIBSVM", "0"), 0);
  EXPECT_EQ(Label("format: LIBSVM", "3"), -1);
}

TEST(LabelRuleTest, ThresholdIsIncluded) {
  EXPECT_EQ(Label("label { positive_at_least: 15 }", "15"), 1);
  EXPECT_EQ(Label("label { positive_at_least: 15 }", "14.9"), 0);
  EXPECT_EQ(Label("label { positive_at_least: 15 }", "-3"), 0);
  EXPECT_EQ(Label("label { positive_at_least: 15 }", "nan"), -1);
  EXPECT_EQ(Label("label { positive_at_least: 0 }", "-1"), 0);
}

TEST(LabelRuleTest, AnyNumberIsALabelWhereTheJobHasNoRule) {
  DataConfig data;
  const auto label = [&](std::string_view cell) {
    float label = -1;
    int value = -1;
    const auto rule = LabelRule::Create(data, /*any_number=*/true);
    EXPECT_TRUE(rule.ok()) << rule.status();
    return rule.ok() && rule->Apply(cell, &label, &value).ok() ? label : -1000;
  };
  EXPECT_EQ(label("1"), 1);
  EXPECT_EQ(label("-2.5"), -2.5F);
  EXPECT_EQ(label("a"), -1000);
  EXPECT_EQ(label("1e300"), -1000);  // too large for a float
  data.mutable_label()->add_positive("a");
  EXPECT_EQ(label("a"), 1);
  EXPECT_EQ(label("2.5"), 0);
}

TEST(LabelRuleTest, MessageNamesColumnAndValue) {
  const auto rule = Rule("label { column: 'income' positive: 'a' negative: 'b' }");
  float label;
  int value;
  EXPECT_THAT(
      std::string(rule->Apply("c\n", &label, &value).message()),
      AllOf(HasSubstr("\"income\""), HasSubstr("\"c\\n\""), HasSubstr("data.label.positive")));
}

TEST(LabelRuleTest, ContradictionsAreRefused) {
  EXPECT_THAT(std::string(Rule("label { negative: 'n' }").status().message()),
              HasSubstr("data.label.positive"));
  EXPECT_THAT(std::string(Rule("label { positive: 'a' negative: 'a' }").status().message()),
              AllOf(HasSubstr("\"a\""), HasSubstr("positive"), HasSubstr("negative")));
  EXPECT_THAT(std::string(Rule("label { positive: 'a' positive_at_least: 1 }").status().message()),
              HasSubstr("positive_at_least"));
}

}  // namespace
}  // namespace sluice

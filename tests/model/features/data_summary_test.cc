#include "model/features/data_summary.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobConfig Job() {
  return JobForTest(
      "data { label { column: 'y' positive: ['>50K', '>50K.'] negative: '<=50K' } } "
      "features { name: 'x' numeric {} } "
      "features { name: 'sex' categorical { vocabulary: ['f', 'm'] } } ");
}

DataSummary Summary(uint64_t examples, uint64_t positive, const std::string& labels,
                    const std::string& sex, uint64_t missing = 0) {
  DataSummary summary;
  summary.set_examples(examples);
  summary.set_positive(positive);
  summary.set_label_values_seen(labels);
  summary.add_features()->set_missing(missing);
  summary.add_features()->set_vocabulary_seen(sex);
  return summary;
}

TEST(DataSummaryTest, PartsAddUp) {
  DataSummary sum;
  DataSummary right = Summary(5, 1, "\x02", "\x02", 2);
  right.mutable_features(1)->set_out_of_vocabulary(3);
  AddSummary(Summary(10, 4, "\x01", "", 1), &sum);
  AddSummary(right, &sum);
  EXPECT_EQ(sum.examples(), 15u);
  EXPECT_EQ(sum.positive(), 5u);
  EXPECT_EQ(sum.label_values_seen(), "\x03");
  EXPECT_EQ(sum.features(0).missing(), 3u);
  EXPECT_EQ(sum.features(1).out_of_vocabulary(), 3u);
  EXPECT_EQ(sum.features(1).vocabulary_seen(), "\x02");
}

TEST(DataSummaryTest, SummariesLargerThanTheJobAreRefused) {
  EXPECT_TRUE(CheckSummary(Job(), Summary(1, 1, "\x07", "\x03")).ok());
  EXPECT_TRUE(CheckSummary(Job(), DataSummary()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSummary(Job(), Summary(1, 1, "ab", ""))));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSummary(Job(), Summary(1, 1, "", "ab"))));
  DataSummary more = Summary(1, 1, "", "");
  more.add_features();
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSummary(Job(), more)));
}

TEST(DataSummaryTest, ValuesThatNeverOccurGiveWarnings) {
  EXPECT_THAT(WarningsOfTraining(Job(), Summary(9, 3, "", "\x03")), IsEmpty());
  EXPECT_THAT(WarningsOfTraining(Job(), Summary(9, 3, "", "\x01")),
              ElementsAre(AllOf(HasSubstr("\"sex\""), HasSubstr("\"m\""), HasSubstr("1 of 2"),
                                Not(HasSubstr("\"f\"")))));
  EXPECT_THAT(WarningsOfTraining(Job(), Summary(9, 3, "", "\x03", 9)),
              ElementsAre(HasSubstr("\"x\"")));
  EXPECT_THAT(WarningsOfTraining(Job(), Summary(9, 0, "", "\x03")),
              ElementsAre(HasSubstr("label 1")));
  EXPECT_THAT(WarningsOfTraining(Job(), Summary(9, 9, "", "\x03")),
              ElementsAre(HasSubstr("label 0")));
}

TEST(DataSummaryTest, LabelValueMayOccurInEitherData) {
  const DataSummary training = Summary(9, 3, "\x05", ""), evaluation = Summary(9, 3, "\x02", "");
  EXPECT_THAT(WarningsOfLabel(Job(), training, evaluation), IsEmpty());
  EXPECT_THAT(WarningsOfLabel(Job(), training, DataSummary()),
              ElementsAre(AllOf(HasSubstr("data.label.positive"), HasSubstr("\">50K.\""))));
  EXPECT_THAT(WarningsOfLabel(Job(), Summary(9, 9, "\x03", ""), DataSummary()),
              ElementsAre(AllOf(HasSubstr("data.label.negative"), HasSubstr("\"<=50K\""))));
}

TEST(DataSummaryTest, WarningsAreBounded) {
  JobConfig job;
  DataSummary summary;
  summary.set_examples(2);
  summary.set_positive(1);
  for (int i = 0; i < 500; ++i) {
    Feature* feature = job.add_features();
    feature->set_name(absl::StrCat("f", i));
    for (int v = 0; v < 100; ++v)
      feature->mutable_categorical()->add_vocabulary(absl::StrCat(std::string(100, 'x'), v));
    summary.add_features();
  }
  const std::vector<std::string> warnings = WarningsOfTraining(job, summary);
  EXPECT_LE(warnings.size(), 21u);
  EXPECT_THAT(warnings, Each(testing::SizeIs(testing::Le(400u))));
  EXPECT_THAT(warnings.back(), HasSubstr("480 more"));
}

}  // namespace
}  // namespace sluice

#include "model/features/data_summary.h"

#include <map>
#include <memory>
#include <string>

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

TEST(DataSummaryTest, RepeatedHeadersGiveAWarning) {
  DataSummary training;
  training.set_examples(3);
  training.set_positive(1);
  EXPECT_TRUE(WarningsOfTraining(JobConfig(), training).empty());
  training.set_repeated_headers(2);
  EXPECT_THAT(WarningsOfTraining(JobConfig(), training),
              ElementsAre(HasSubstr("header lines in the middle of files")));
  DataSummary sum;
  AddSummary(training, &sum);
  AddSummary(training, &sum);
  EXPECT_EQ(sum.repeated_headers(), 4u);
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

constexpr char kCountedJob[] =
    "data { format: CSV csv { header: true } label { column: 'y' positive: ['yes', 'y'] "
    "negative: ['no', 'n'] } } "
    "features { name: 'x' numeric {} } "
    "features { name: 'sex' categorical { vocabulary: ['f', 'm', 'x'] } } "
    "features { name: 'tags' categorical { vocabulary: ['a', 'b'] multi_value_delimiter: '|' } } "
    "features { name: 'free' categorical { column: 'sex' } } "
    "features { name: 'both' cross { features: ['sex', 'free'] } } "
    "features { name: 'last' numeric {} } ";

using Cells = std::map<std::string, std::string>;

class DataCountsTest : public ::testing::Test {
 protected:
  bool Append(const Cells& cells) {
    batch_.counts = &counts_;
    return AppendForTest(*schema_, cells, &batch_).ok();
  }
  DataSummary Summary() { return schema_->Summarize(counts_); }

  const JobConfig job_ = JobForTest(kCountedJob);
  const std::shared_ptr<const FeatureSchema> schema_ = SchemaForTest(job_);
  Batch batch_ = EmptyBatch(*schema_);
  DataCounts counts_;
};

TEST_F(DataCountsTest, CountsByFeatureOfTheJob) {
  ASSERT_TRUE(Append({{"y", "yes"}, {"x", "1"}, {"sex", "f"}, {"tags", "a|z|z"}, {"last", "1"}}));
  ASSERT_TRUE(Append({{"y", "no"}, {"sex", "?"}, {"tags", "a"}, {"last", "1"}}));
  ASSERT_TRUE(Append({{"y", "no"}, {"last", "2"}}));
  const DataSummary summary = Summary();
  EXPECT_EQ(summary.examples(), 3u);
  EXPECT_EQ(summary.positive(), 1u);
  ASSERT_EQ(summary.features_size(), 6);
  EXPECT_EQ(summary.features(0).missing(), 2u);
  EXPECT_EQ(summary.features(1).missing(), 1u);
  EXPECT_EQ(summary.features(1).out_of_vocabulary(), 1u);
  EXPECT_TRUE(HasOccurred(summary.features(1).vocabulary_seen(), 0));
  EXPECT_FALSE(HasOccurred(summary.features(1).vocabulary_seen(), 1));
  EXPECT_FALSE(HasOccurred(summary.features(1).vocabulary_seen(), 2));
  EXPECT_EQ(summary.features(2).out_of_vocabulary(), 1u);  // an example counts once
  EXPECT_TRUE(HasOccurred(summary.features(2).vocabulary_seen(), 0));
  EXPECT_EQ(summary.features(3).missing(), 1u);
  EXPECT_EQ(summary.features(3).out_of_vocabulary(), 0u);
  EXPECT_EQ(summary.features(4).missing(), 0u);
  EXPECT_EQ(summary.features(5).missing(), 0u);
  EXPECT_TRUE(HasOccurred(summary.label_values_seen(), 0));
  EXPECT_FALSE(HasOccurred(summary.label_values_seen(), 1));
  EXPECT_TRUE(HasOccurred(summary.label_values_seen(), 2));
  EXPECT_FALSE(HasOccurred(summary.label_values_seen(), 3));
}

TEST_F(DataCountsTest, BadLineCountsNothing) {
  // The line's vocabulary values and label are read before the number that makes the line bad.
  EXPECT_FALSE(Append({{"y", "yes"}, {"x", "1"}, {"sex", "m"}, {"tags", "z"}, {"last", "wide"}}));
  EXPECT_FALSE(Append({{"y", "perhaps"}, {"x", "1"}, {"sex", "m"}, {"last", "1"}}));
  ASSERT_TRUE(Append({{"y", "no"}, {"x", "1"}, {"sex", "f"}, {"tags", "b"}, {"last", "1"}}));
  const DataSummary summary = Summary();
  EXPECT_EQ(summary.examples(), 1u);
  EXPECT_EQ(summary.positive(), 0u);
  EXPECT_FALSE(HasOccurred(summary.features(1).vocabulary_seen(), 1));
  EXPECT_EQ(summary.features(2).out_of_vocabulary(), 0u);
  EXPECT_FALSE(HasOccurred(summary.label_values_seen(), 0));
}

TEST_F(DataCountsTest, NullCountsAreSkipped) {
  ASSERT_TRUE(AppendForTest(*schema_, {{"y", "yes"}, {"sex", "f"}}, &batch_).ok());
  EXPECT_EQ(Summary().examples(), 0u);
}

}  // namespace
}  // namespace sluice

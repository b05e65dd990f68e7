#include "common/config/feature_patterns.h"

#include "common/config/config_problem.h"
#include "common/config/textproto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

JobConfig JobOf(const std::string& features) {
  JobConfig job;
  const absl::Status parsed =
      ParseTextproto("data { format: CSV label { column: 'y' } weight_column: 'w' } " + features,
                     "job", &job, nullptr);
  EXPECT_TRUE(parsed.ok()) << parsed;
  return job;
}

std::vector<std::string> NamesOf(const JobConfig& job) {
  std::vector<std::string> names;
  for (const Feature& feature : job.features()) names.push_back(feature.name());
  return names;
}

std::vector<std::string> NamesAfterRanges(const std::string& features) {
  JobConfig job = JobOf(features);
  const absl::Status status = FeaturePatterns(&job).ExpandRanges();
  EXPECT_TRUE(status.ok()) << status;
  return NamesOf(job);
}

// "path: message" of the error that the ranges cause.
std::string RangeError(const std::string& features) {
  JobConfig job = JobOf(features);
  const absl::Status status = FeaturePatterns(&job).ExpandRanges();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << features;
  return FieldOf(status) + ": " + std::string(status.message());
}

absl::Status ExpandAll(JobConfig* job, const std::vector<std::string>& columns) {
  FeaturePatterns patterns(job);
  const absl::Status ranges = patterns.ExpandRanges();
  EXPECT_TRUE(ranges.ok()) << ranges;
  EXPECT_TRUE(patterns.HasWildcards());
  return patterns.ExpandWildcards(columns);
}

std::string WildcardError(const std::string& features, const std::vector<std::string>& columns) {
  JobConfig job = JobOf(features);
  const absl::Status status = ExpandAll(&job, columns);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << features;
  return FieldOf(status) + ": " + std::string(status.message());
}

TEST(FeatureRangeTest, RangesCountUpWithTheDigitsOfTheirEnds) {
  EXPECT_THAT(NamesAfterRanges("features { name: 'a' } features { name: 'C{9..11}' numeric {} }"),
              ElementsAre("a", "C9", "C10", "C11"));
  EXPECT_THAT(NamesAfterRanges("features { name: '{08..10}_x' numeric {} }"),
              ElementsAre("08_x", "09_x", "10_x"));
  EXPECT_THAT(NamesAfterRanges("features { name: '{0..10}' numeric {} }"), SizeIs(11));
  EXPECT_THAT(NamesAfterRanges("features { name: '{7..7}' numeric {} }"), ElementsAre("7"));
  EXPECT_THAT(NamesAfterRanges("features { name: '{1..100000}' numeric {} }"), SizeIs(100000));
  // No range: names as they are.
  EXPECT_THAT(NamesAfterRanges("features { name: 'a..b' } features { name: '{x}' }"),
              ElementsAre("a..b", "{x}"));
}

TEST(FeatureRangeTest, SingleFeaturesShareSettingsAndColumnsAndCrossesGoInStep) {
  JobConfig job = JobOf(
      "features { name: 'f{1..2}' in_deep: false categorical { column: 'c{03..04}' hash_buckets: 9 "
      "} } features { name: 'x{1..2}' cross { features: ['f{1..2}', 'z'] } }");
  FeaturePatterns patterns(&job);
  ASSERT_TRUE(patterns.ExpandRanges().ok());
  EXPECT_THAT(NamesOf(job), ElementsAre("f1", "f2", "x1", "x2"));
  EXPECT_EQ(job.features(1).categorical().column(), "c04");
  EXPECT_EQ(job.features(1).categorical().hash_buckets(), 9u);
  EXPECT_FALSE(job.features(1).in_deep());
  EXPECT_THAT(job.features(3).cross().features(), ElementsAre("f2", "z"));
  // The file has two features.
  EXPECT_EQ(patterns.PathInFile("features[1].categorical.column"),
            "features[0].categorical.column");
  EXPECT_EQ(patterns.PathInFile("features[3].name"), "features[1].name");
  EXPECT_EQ(patterns.PathInFile("features[4].name"), "features[4].name");
  EXPECT_EQ(patterns.PathInFile("train.epochs"), "train.epochs");
}

TEST(FeatureRangeTest, ExpandingAgainChangesNothing) {
  JobConfig job = JobOf("features { name: 'f{1..2}' numeric { column: 'c{1..2}' } }");
  ASSERT_TRUE(FeaturePatterns(&job).ExpandRanges().ok());
  const std::string once = job.SerializeAsString();
  ASSERT_TRUE(FeaturePatterns(&job).ExpandRanges().ok());
  EXPECT_EQ(job.SerializeAsString(), once);
}

TEST(FeatureRangeTest, WrongRangesAreRefusedWithTheirField) {
  const auto numeric = [](const std::string& name) {
    return "features { name: 'a' } features { name: '" + name + "' numeric {} }";
  };
  EXPECT_THAT(RangeError(numeric("C{26..1}")),
              AllOf(HasSubstr("features[1].name: 'C{26..1}'"), HasSubstr("{1..26}")));
  EXPECT_THAT(RangeError(numeric("C{01..100}")), HasSubstr("digits"));
  EXPECT_THAT(RangeError(numeric("C{a..b}")), HasSubstr("{1..59}"));
  EXPECT_THAT(RangeError(numeric("C{1..}")), HasSubstr("{1..59}"));
  EXPECT_THAT(RangeError(numeric("C{1..2}_{3..4}")), HasSubstr("two ranges"));
  EXPECT_THAT(RangeError(numeric("C{1..9")), HasSubstr("{1..59}"));
  EXPECT_THAT(RangeError(numeric("C1..9}")), HasSubstr("{1..59}"));
  EXPECT_THAT(RangeError(numeric("C{0..100000}")), HasSubstr("at most 100000"));
  JobConfig one_hot = JobOf(numeric("{1..1000000}"));
  one_hot.mutable_data()->set_format(DataConfig::LIBSVM);
  EXPECT_THAT(std::string(FeaturePatterns(&one_hot).ExpandRanges().message()),
              AllOf(HasSubstr("one-hot LIBSVM"), HasSubstr("name: \"indices\"")));
  EXPECT_THAT(RangeError(numeric("C{1..99999999999999999999}")), HasSubstr("too large"));
  EXPECT_THAT(RangeError("features { name: 'a{1..60000}' } features { name: 'b{1..60000}' }"),
              HasSubstr("features[1].name"));
  EXPECT_THAT(RangeError("features { name: 'f{1..3}' numeric { column: 'c{1..2}' } }"),
              HasSubstr("features[0].numeric.column: 'c{1..2}'"));
  EXPECT_THAT(RangeError("features { name: 'f' categorical { column: 'c{1..2}' } }"),
              HasSubstr("features[0].categorical.column"));
  EXPECT_THAT(RangeError("features { name: 'f' cross { features: ['c{1..2}', 'd'] } }"),
              HasSubstr("features[0].cross.features"));
}

TEST(FeatureRangeTest, FeaturesWithTheSameNameAreRefusedNamingBoth) {
  EXPECT_THAT(RangeError("features { name: 'C2' } features { name: 'C{1..3}' numeric {} }"),
              AllOf(HasSubstr("features[1].name"), HasSubstr("'C{1..3}'"), HasSubstr("'C2'")));
  EXPECT_THAT(RangeError("features { name: 'C{1..3}' } features { name: 'C{3..4}' }"),
              AllOf(HasSubstr("'C3'"), HasSubstr("'C{1..3}'"), HasSubstr("'C{3..4}'")));
}

TEST(FeatureWildcardTest, MatchesUnusedColumnsInTheirOrder) {
  JobConfig job = JobOf(
      "features { name: 'C*' categorical {} } features { name: 'C2' numeric {} } "
      "features { name: 'date' numeric { column: 'Cdate' } } features { name: '*' numeric {} }");
  const absl::Status status =
      ExpandAll(&job, {"y", "C10", "w", "x", "C2", "Cdate", "C1", "C", "z"});
  ASSERT_TRUE(status.ok()) << status;
  // "C" has nothing for the '*' of "C*" to stand for; '*' alone takes it.
  EXPECT_THAT(NamesOf(job), ElementsAre("C10", "C1", "C2", "date", "x", "C", "z"));
  EXPECT_TRUE(job.features(1).has_categorical());
  EXPECT_EQ(job.features(1).categorical().column(), "C1");
  EXPECT_TRUE(job.features(4).has_numeric());
}

TEST(FeatureWildcardTest, ColumnsAndFeaturesMayHaveDifferentNames) {
  JobConfig job = JobOf("features { name: 'count_*' numeric { column: 'I*_n' log: true } }");
  FeaturePatterns patterns(&job);
  ASSERT_TRUE(patterns.ExpandRanges().ok());
  ASSERT_TRUE(patterns.ExpandWildcards({"I1_n", "I2", "I3_n"}).ok());
  EXPECT_THAT(NamesOf(job), ElementsAre("count_1", "count_3"));
  EXPECT_EQ(job.features(1).numeric().column(), "I3_n");
  EXPECT_TRUE(job.features(1).numeric().log());
  EXPECT_EQ(patterns.PathInFile("features[1].name"), "features[0].name");
}

TEST(FeatureWildcardTest, TheLabelOfCriteoIsNotMatched) {
  JobConfig job = JobOf("features { name: '*' categorical {} }");
  job.mutable_data()->set_format(DataConfig::CRITEO_TSV);
  ASSERT_TRUE(ExpandAll(&job, {"label", "I1", "C1"}).ok());
  EXPECT_THAT(NamesOf(job), ElementsAre("I1", "C1"));
}

TEST(FeatureWildcardTest, WrongWildcardsAreRefusedWithTheirField) {
  EXPECT_THAT(
      WildcardError("features { name: 'x' } features { name: 'D*' numeric {} }", {"C1", "y"}),
      AllOf(HasSubstr("features[1].name: 'D*'"), HasSubstr("C1")));
  EXPECT_THAT(WildcardError("features { name: '*' numeric {} }", {"y", "w"}), HasSubstr("none"));
  EXPECT_THAT(WildcardError("features { name: 'a*b*' numeric {} }", {"a1b2"}),
              HasSubstr("more than one '*'"));
  EXPECT_THAT(WildcardError("features { name: 'a*' numeric { column: 'b' } }", {"b"}),
              HasSubstr("column 'b'"));
  EXPECT_THAT(WildcardError("features { name: 'a*' cross { features: ['x', 'y'] } }", {"a1"}),
              HasSubstr("cross"));
  EXPECT_THAT(WildcardError("features { name: 'a*' }", {"a1"}), HasSubstr("no kind"));
  EXPECT_THAT(WildcardError("features { name: 'a*' numeric {} }", {"a1", "b", "a1"}),
              AllOf(HasSubstr("features[0].name: 'a*'"), HasSubstr("'a1'"), HasSubstr("twice")));
  EXPECT_THAT(WildcardError("features { name: 'f1' numeric { column: 'x' } } "
                            "features { name: 'f*' numeric { column: 'c*' } }",
                            {"c1"}),
              AllOf(HasSubstr("features[1].name: 'f*'"), HasSubstr("'f1'")));
}

}  // namespace
}  // namespace sluice

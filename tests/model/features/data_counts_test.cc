#include "model/features/data_counts.h"

#include "gmock/gmock.h"
#include "model/features/data_summary.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

constexpr char kJob[] =
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

  const JobConfig job_ = JobForTest(kJob);
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

#include "cli/data_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DataTextTest : public testing::Test {
 protected:
  DataTextTest() {
    data_.set_examples(1000);
    data_.set_positive(241);
    for (int i = 0; i < 5; ++i) {
      config_.add_features()->set_name(absl::StrCat("f", i));
      data_.add_features()->set_missing(10 * i);
    }
  }
  DataSummary data_;
  JobConfig config_;
};

TEST_F(DataTextTest, EmptySummaryGivesNoText) { EXPECT_EQ(DataText(DataSummary(), config_), ""); }

TEST_F(DataTextTest, NamesTheFeaturesWithTheMostMissingValues) {
  EXPECT_THAT(DataText(data_, config_),
              AllOf(HasSubstr("24.1 %"), HasSubstr("f4 4.0 %, f3 3.0 %, f2 2.0 %, and 1 more"),
                    Not(HasSubstr("f1")), Not(HasSubstr("vocabulary"))));
}

TEST_F(DataTextTest, NamesFeaturesWithUnknownValues) {
  data_.mutable_features(1)->set_out_of_vocabulary(500);
  EXPECT_THAT(DataText(data_, config_), HasSubstr("vocabulary: f1 50.0 %\n"));
}

TEST_F(DataTextTest, FeaturesOfAnotherConfigurationAreNotNamed) {
  config_.add_features();
  EXPECT_THAT(DataText(data_, config_), AllOf(HasSubstr("24.1 %"), Not(HasSubstr("f4"))));
}

}  // namespace
}  // namespace sluice::cli

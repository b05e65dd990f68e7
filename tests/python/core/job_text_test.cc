#include "python/core/job_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(JobTextTest, JsonIsMergedFieldByField) {
  const auto job = MergeIntoJob("train { epochs: 3 } features { name: \"a\" categorical {} }",
                                R"({"train": {"batch_size": 512}, "data": {"format": "CSV"},
          "features": [{"name": "b", "numeric": {}}]})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job,
              AllOf(HasSubstr("epochs: 3"), HasSubstr("batch_size: 512"), HasSubstr("format: CSV"),
                    HasSubstr("name: \"a\""), HasSubstr("name: \"b\"")));
}

TEST(JobTextTest, WrongJsonIsNamed) {
  const auto unknown = MergeIntoJob("", R"({"trian": {}})");
  EXPECT_TRUE(absl::IsInvalidArgument(unknown.status()));
  EXPECT_THAT(unknown.status().message(), HasSubstr("trian"));
  EXPECT_FALSE(MergeIntoJob("", R"({"train": {"epochs": "many"}})").ok());
  EXPECT_FALSE(MergeIntoJob("train { epohcs: 3 }", "{}").ok());
}

TEST(JobTextTest, AFieldIsSetAsOnTheCommandLine) {
  const auto job = SetInJob("train { epochs: 3 }", "train.epochs", "5");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job, HasSubstr("epochs: 5"));
  const auto list = SetInJob("", "model.wide_deep.hidden_units", "[64, 32]");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, HasSubstr("hidden_units: [64, 32]"));
  const auto wrong = SetInJob("", "train.epohcs", "5");
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status()));
  EXPECT_THAT(wrong.status().message(), HasSubstr("epohcs"));
}

TEST(JobTextTest, PathsBecomeAbsoluteAndANamelessJobGetsAName) {
  const std::string text = "data { format: CSV train_files: \"a.csv\" eval_files: \"/b.csv\" }";
  const auto job = ResolveJob(text, "/data", "adult");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job, AllOf(HasSubstr("\"/data/a.csv\""), HasSubstr("\"/b.csv\""),
                          HasSubstr("name: \"adult\"")));
  EXPECT_THAT(*ResolveJob("name: \"own\"", "", "adult"), HasSubstr("name: \"own\""));
}

}  // namespace
}  // namespace sluice

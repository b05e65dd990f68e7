#include "python/core/json_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JsonTextTest, WhatIsWrongIsNamedWithItsPathAndTheChoices) {
  const auto said = [](const std::string& json) {
    JobConfig job;
    const absl::Status status = ParseJson(json, "the job", &job);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << json;
    return std::string(status.message());
  };
  EXPECT_THAT(said(R"({"data": {"format": "CVS"}})"),
              AllOf(HasSubstr("data.format: \"CVS\""), HasSubstr("CSV, TSV")));
  EXPECT_THAT(said(R"({"train": {"batchsize": 3}})"),
              AllOf(HasSubstr("train: "), HasSubstr("did you mean 'batch_size'?")));
  EXPECT_THAT(said(R"({"train": {"epochs": "many"}})"),
              AllOf(HasSubstr("train.epochs: \"many\""), HasSubstr("number")));
  EXPECT_THAT(said(R"({"train": {"epochs": -1}})"),
              AllOf(HasSubstr("train.epochs: -1"), HasSubstr("negative")));
  EXPECT_THAT(said(R"({"train": {"epochs": 1.5}})"), HasSubstr("train.epochs: 1.5"));
  EXPECT_THAT(said(R"({"train": {"epochs": 5000000000}})"), HasSubstr("too large"));
  EXPECT_THAT(said(R"({"train": 5})"), AllOf(HasSubstr("train: 5"), HasSubstr("batch_size")));
  EXPECT_THAT(said(R"({"features": [{"name": "a"}, {"name": 7}]})"),
              HasSubstr("features[1].name: 7 is not a text"));
  EXPECT_THAT(said(R"({"features": {"name": 7}})"), HasSubstr("features.name: 7 is not a text"));
  EXPECT_THAT(said(R"({"optimizers": {"all": {"sgd": {}, "adam": {}}}})"),
              AllOf(HasSubstr("optimizers.all: "), HasSubstr("'sgd'"), HasSubstr("'adam'"),
                    HasSubstr("exclude each other")));
  EXPECT_THAT(said(R"({"optimizers": {"all": {"sgd": {"momentum": 1}}}})"),
              HasSubstr("has no fields"));
  EXPECT_THAT(said(R"({"strategy": {"a_sync": "maybe"}})"),
              AllOf(HasSubstr("strategy.a_sync"), HasSubstr("true or false")));
}

TEST(JsonTextTest, OtherErrorsAreThoseOfTheParser) {
  JobConfig job;
  const absl::Status status = ParseJson("{", "the job", &job);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), StartsWith("the job: "));
}

TEST(JsonTextTest, NumbersInTextsAreNoMistake) {
  JobConfig job;
  ASSERT_TRUE(ParseJson(R"({"train": {"seed": "7"}, "name": null})", "the job", &job).ok());
  EXPECT_EQ(job.train().seed(), 7u);
  EXPECT_THAT(
      std::string(ParseJson(R"({"train": {"seed": "7", "epohcs": 1}})", "it", &job).message()),
      HasSubstr("epohcs"));
}

}  // namespace
}  // namespace sluice

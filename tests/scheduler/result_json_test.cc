#include "scheduler/result_json.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

TEST(ResultJsonTest, HasTheDocumentedShape) {
  JobResult result;
  result.set_job("adult-1");
  result.set_mode("geo");
  result.set_k_steps(20);
  result.set_status("done");
  result.set_examples(9007199254740993);
  result.set_seconds(0.1);
  result.mutable_eval()->set_auc(0.91);
  result.add_epochs_log()->mutable_eval()->set_auc(0.5);
  result.add_epochs_log()->set_epoch(1);
  result.set_message("a \"quoted\"\nline \x01");
  const std::string json = ResultJson(result);
  EXPECT_THAT(json, testing::HasSubstr("\"examples\": 9007199254740993,"));
  EXPECT_THAT(json, testing::HasSubstr("\"seconds\": 0.1,"));

  google::protobuf::Struct parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &parsed);
  ASSERT_TRUE(status.ok()) << status.ToString() << json;
  const auto& fields = parsed.fields();
  for (const char* name : {"job", "mode", "k_steps", "status", "epochs", "global_step", "examples",
                           "bad_lines", "seconds", "examples_per_second", "eval", "epochs_log",
                           "stages", "model_dir", "model_digest"}) {
    EXPECT_EQ(fields.count(name), 1u) << name;
  }
  EXPECT_EQ(fields.at("message").string_value(), "a \"quoted\"\nline \x01");
  for (const char* name : {"auc", "log_loss", "accuracy", "mae", "rmse", "examples"}) {
    EXPECT_EQ(fields.at("eval").struct_value().fields().count(name), 1u) << name;
  }
  const auto& log = fields.at("epochs_log").list_value();
  ASSERT_EQ(log.values_size(), 2);
  EXPECT_EQ(log.values(0)
                .struct_value()
                .fields()
                .at("eval")
                .struct_value()
                .fields()
                .at("auc")
                .number_value(),
            0.5);
  EXPECT_TRUE(log.values(1).struct_value().fields().at("eval").has_null_value());
}

TEST(ResultJsonTest, HotRowsAreThereWithACache) {
  JobResult result;
  EXPECT_THAT(ResultJson(result), testing::Not(testing::HasSubstr("hot_rows")));
  HotRowUse* use = result.mutable_hot_rows();
  use->set_hits(3);
  use->set_misses(1);
  use->set_staleness_sum(10);
  use->set_staleness_max(4);
  use->set_whole_batches(2);
  EXPECT_THAT(ResultJson(result),
              testing::HasSubstr("\"hot_rows\": {\"hits\": 3, \"misses\": 1, \"hit_share\": 0.75, "
                                 "\"staleness_mean\": 2.5, \"staleness_max\": 4, "
                                 "\"whole_batches\": 2}"));
}

TEST(ResultJsonTest, WhatIsNotFiniteIsNull) {
  JobResult result;
  result.set_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"seconds\": null"));
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"eval\": null"));
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"epochs_log\": []"));
}

}  // namespace
}  // namespace sluice

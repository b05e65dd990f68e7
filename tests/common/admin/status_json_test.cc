#include "common/admin/status_json.h"

#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "proto/scheduler.pb.h"

namespace sluice {
namespace {

google::protobuf::Struct Parsed(const google::protobuf::Message& message) {
  const std::string json = StatusJson(message);
  google::protobuf::Struct parsed;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) << json;
  return parsed;
}

const google::protobuf::Value& Metric(const google::protobuf::Struct& status,
                                      const std::string& name) {
  return status.fields()
      .at("epochs_log")
      .list_value()
      .values(0)
      .struct_value()
      .fields()
      .at("eval")
      .struct_value()
      .fields()
      .at(name);
}

TEST(StatusJsonTest, UndefinedMetricsAreNull) {
  JobStatus status;
  EvalMetrics* eval = status.add_epochs_log()->mutable_eval();
  eval->set_auc_undefined("no example was evaluated");
  for (const bool defined : {false, true}) {
    const double value = defined ? 0.5 : std::numeric_limits<double>::quiet_NaN();
    eval->set_log_loss(value);
    eval->set_accuracy(value);
    eval->set_positive_rate(value);
    if (defined) eval->set_auc(value);
    const google::protobuf::Struct parsed = Parsed(status);
    for (const char* name : {"auc", "log_loss", "accuracy", "positive_rate"}) {
      EXPECT_EQ(Metric(parsed, name).has_null_value(), !defined) << name;
      if (defined) {
        EXPECT_EQ(Metric(parsed, name).number_value(), 0.5) << name;
      }
    }
    EXPECT_EQ(Metric(parsed, "mae").number_value(), 0);  // 0 is shown, too
  }
}

TEST(StatusJsonTest, NumbersAreNumbersAndStatesAreWords) {
  ClusterStatus status;
  status.add_members()->set_role(ROLE_PSERVER);
  status.mutable_members(0)->set_memory_bytes(123456789012);
  JobStatus* const job = status.add_jobs();
  job->set_state(JOB_RUNNING);
  job->set_global_step(UINT64_MAX);
  job->add_allocated(3);
  job->mutable_config()->mutable_data()->set_format(DataConfig::CSV);
  job->mutable_result()->set_seconds(std::numeric_limits<double>::infinity());
  const std::string json = StatusJson(status);
  for (const char* part :
       {"\"role\": \"pserver\"", "\"memory_bytes\": 123456789012,", "\"state\": \"running\"",
        "\"global_step\": 18446744073709551615", "\"format\": \"CSV\"", "\"seconds\": null",
        "\"alive\": false", "\"epochs_log\": []", "\"allocated\": [\n    3\n   ]"})
    EXPECT_THAT(json, testing::HasSubstr(part));
  Parsed(status);
}

TEST(StatusJsonTest, TextsStayAsTheyAre) {
  JobStatus status;
  status.set_message("\"accuracy\": \"NaN\", \"auc_error_bound\": ");
  status.set_job_id("NaN");
  const google::protobuf::Struct parsed = Parsed(status);
  EXPECT_EQ(parsed.fields().at("message").string_value(), status.message());
  EXPECT_EQ(parsed.fields().at("job_id").string_value(), "NaN");
}

}  // namespace
}  // namespace sluice

#include "scheduler/files/result_json.h"

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

TEST(ResultJsonTest, TheBestEpochStandsBesideTheFinalOne) {
  JobResult result;
  EXPECT_THAT(ResultJson(result), testing::AllOf(testing::HasSubstr("\"best\": null"),
                                                 testing::HasSubstr("\"stopped_early\": false"),
                                                 testing::HasSubstr("\"stopped_by\": \"\"")));
  result.set_stopped_early(true);
  result.set_stopped_by("program");
  result.mutable_best()->set_epoch(4);
  result.mutable_best()->set_step(208);
  result.mutable_best()->mutable_eval()->set_log_loss(0.25);
  EXPECT_THAT(
      ResultJson(result),
      testing::AllOf(testing::HasSubstr("\"best\": {\"epoch\": 4, \"step\": 208, \"eval\": {"),
                     testing::HasSubstr("\"log_loss\": 0.25"),
                     testing::HasSubstr("\"stopped_early\": true"),
                     testing::HasSubstr("\"stopped_by\": \"program\"")));
}

TEST(ResultJsonTest, RecoverySaysWhatTheJobResumedFrom) {
  JobResult result;
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"checkpoints\": null"));
  result.set_resumed_from("/out/checkpoints/step-7");
  result.mutable_checkpoint()->set_made(3);
  result.mutable_checkpoint()->set_failed(1);
  result.mutable_checkpoint()->set_dir("/out/checkpoints/step-9");
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"age_s\": null"));
  result.mutable_checkpoint()->set_age_s(12.5);
  result.mutable_recovery()->set_scalings(2);
  RecoveryEvent* const event = result.mutable_recovery()->add_events();
  event->set_step(12);
  event->set_text("worker \"1\" was killed");
  result.add_calibration_bins()->set_probability(0.25);
  JobConfig config;
  config.set_worker_num(3);
  const std::string json = ResultJson(result, config);
  google::protobuf::Struct parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) << json;
  EXPECT_EQ(parsed.fields().at("worker_num").number_value(), 3);
  const auto& recovery = parsed.fields().at("recovery").struct_value().fields();
  for (const char* name : {"worker_losses", "pserver_losses", "scheduler_restarts", "rollbacks",
                           "examples_replayed", "updates_lost", "shrinks"}) {
    EXPECT_EQ(recovery.at(name).number_value(), 0) << name;
  }
  EXPECT_EQ(recovery.at("scalings").number_value(), 2);
  ASSERT_EQ(recovery.at("events").list_value().values_size(), 1);
  const auto& shown = recovery.at("events").list_value().values(0).struct_value().fields();
  EXPECT_EQ(shown.at("step").number_value(), 12);
  EXPECT_EQ(shown.at("text").string_value(), "worker \"1\" was killed");
  const auto& bins = parsed.fields().at("calibration_bins").list_value();
  ASSERT_EQ(bins.values_size(), 1);
  EXPECT_EQ(bins.values(0).struct_value().fields().at("probability").number_value(), 0.25);
  EXPECT_EQ(recovery.at("resumed_from").string_value(), "/out/checkpoints/step-7");
  const auto& checkpoints = parsed.fields().at("checkpoints").struct_value().fields();
  EXPECT_EQ(checkpoints.at("made").number_value(), 3);
  EXPECT_EQ(checkpoints.at("failed").number_value(), 1);
  EXPECT_EQ(checkpoints.at("newest").string_value(), "/out/checkpoints/step-9");
  EXPECT_EQ(checkpoints.at("age_s").number_value(), 12.5);
}

TEST(ResultJsonTest, SaysWhatTheRowsOfEachTableDid) {
  JobResult result;
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"tables\": []"));
  TableStatus* const table = result.add_tables();
  table->set_name("e");
  table->set_rows(90);
  table->set_reserved_bytes(4096);
  table->mutable_turnover()->set_refused(7);
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"row_limit\": null"));
  table->set_row_limit(100);
  const std::string json = ResultJson(result);
  google::protobuf::Struct parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) << json;
  const auto& one = parsed.fields().at("tables").list_value().values(0).struct_value().fields();
  EXPECT_EQ(one.at("name").string_value(), "e");
  EXPECT_EQ(one.at("rows").number_value(), 90);
  EXPECT_EQ(one.at("reserved_bytes").number_value(), 4096);
  EXPECT_EQ(one.at("row_limit").number_value(), 100);
  EXPECT_EQ(one.at("rows_refused").number_value(), 7);
  EXPECT_EQ(one.at("rows_evicted").number_value(), 0);
}

TEST(ResultJsonTest, NamesTheInitialCheckpoint) {
  EXPECT_THAT(ResultJson(JobResult()), testing::HasSubstr("\"initial_checkpoint\": \"\""));
  JobConfig config;
  config.set_initial_checkpoint("/yesterday/checkpoints/step-7");
  EXPECT_THAT(ResultJson(JobResult(), config),
              testing::HasSubstr("\"initial_checkpoint\": \"/yesterday/checkpoints/step-7\""));
}

TEST(ResultJsonTest, HotRowsArePresentWithACache) {
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

TEST(ResultJsonTest, MetricsOfTheProgramStandInTheirEvaluations) {
  JobResult result;
  result.mutable_eval()->set_examples(3);
  EXPECT_THAT(ResultJson(result), testing::Not(testing::HasSubstr("\"user\"")));
  const auto add = [&](const char* name, double value) {
    NamedValue* const metric = result.mutable_eval()->add_user();
    metric->set_name(name);
    metric->set_value(value);
  };
  add("ndcg/at-10", 0.25);
  add("none", std::nan(""));
  *result.add_epochs_log()->mutable_eval() = result.eval();
  const std::string json = ResultJson(result);
  const size_t first = json.find("\"user\": {\"ndcg/at-10\": 0.25, \"none\": null}");
  ASSERT_NE(first, std::string::npos) << json;
  EXPECT_NE(json.find("\"user\": {\"ndcg/at-10\": 0.25", first + 1), std::string::npos);
}

TEST(ResultJsonTest, AnUndefinedAucIsNullAndSaysWhy) {
  JobResult result;
  result.mutable_eval()->set_examples(3);
  result.mutable_eval()->set_auc_undefined("no example has label 1");
  result.mutable_eval()->set_accuracy(1);
  const std::string json = ResultJson(result);
  for (const char* part : {"\"auc\": null", "\"auc_standard_error\": null", "\"accuracy\": 1",
                           "\"auc_undefined\": \"no example has label 1\""}) {
    EXPECT_THAT(json, testing::HasSubstr(part));
  }
  result.mutable_eval()->clear_auc_undefined();
  result.mutable_eval()->set_auc(0.75);
  result.mutable_eval()->set_auc_standard_error(0.25);
  const std::string defined = ResultJson(result);
  EXPECT_THAT(defined, testing::HasSubstr("\"auc\": 0.75"));
  EXPECT_THAT(defined, testing::HasSubstr("\"auc_standard_error\": 0.25"));
  EXPECT_THAT(defined, testing::Not(testing::HasSubstr("auc_undefined")));
}

TEST(ResultJsonTest, DataHasSharesByFeatureAndWarningsAreListed) {
  JobConfig config;
  config.add_features()->set_name("x");
  Feature* sex = config.add_features();
  sex->set_name("sex");
  for (const char* value : {"f", "m", "x"}) sex->mutable_categorical()->add_vocabulary(value);
  Feature* both = config.add_features();
  both->set_name("both");
  both->mutable_cross();
  JobResult result;
  EXPECT_THAT(ResultJson(result, config), testing::HasSubstr("\"data\": null"));
  EXPECT_THAT(ResultJson(result, config), testing::HasSubstr("\"warnings\": []"));
  DataSummary* data = result.mutable_data();
  data->set_examples(8);
  data->set_positive(2);
  data->add_features()->set_missing(1);
  FeatureSummary* summary = data->add_features();
  summary->set_out_of_vocabulary(4);
  summary->set_vocabulary_seen("\x05");
  data->add_features();
  result.add_warnings("a \"quoted\" warning");
  google::protobuf::Struct parsed;
  const std::string json = ResultJson(result, config);
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &parsed).ok()) << json;
  EXPECT_EQ(parsed.fields().at("warnings").list_value().values(0).string_value(),
            "a \"quoted\" warning");
  const auto& fields = parsed.fields().at("data").struct_value().fields();
  EXPECT_EQ(fields.at("examples").number_value(), 8);
  EXPECT_EQ(fields.at("positive_rate").number_value(), 0.25);
  const auto& features = fields.at("features").list_value();
  ASSERT_EQ(features.values_size(), 2);  // a cross has no cells
  const auto& x = features.values(0).struct_value().fields();
  EXPECT_EQ(x.at("name").string_value(), "x");
  EXPECT_EQ(x.at("missing").number_value(), 0.125);
  EXPECT_EQ(x.count("out_of_vocabulary"), 0u);
  const auto& of_sex = features.values(1).struct_value().fields();
  EXPECT_EQ(of_sex.at("out_of_vocabulary").number_value(), 0.5);
  EXPECT_EQ(of_sex.at("vocabulary").number_value(), 3);
  EXPECT_EQ(of_sex.at("vocabulary_seen").number_value(), 2);
}

TEST(ResultJsonTest, NonFiniteNumbersAreNull) {
  JobResult result;
  result.set_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"seconds\": null"));
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"eval\": null"));
  EXPECT_THAT(ResultJson(result), testing::HasSubstr("\"epochs_log\": []"));
}

}  // namespace
}  // namespace sluice

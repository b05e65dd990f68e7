#include "common/config/job_validation.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/config/good_job.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// The message of making GoodJob() with `path=value` pairs effective; "" when nothing is wrong.
std::string JobValidationRefusal(const std::vector<std::pair<std::string, std::string>>& settings,
                                 const FakeRules& rules = FakeRules()) {
  JobConfig job = GoodJob();
  std::vector<ConfigOverride> overrides;
  for (const auto& [path, value] : settings) overrides.push_back({path, value, "--set"});
  const absl::Status applied = ApplyOverrides(overrides, &job);
  if (!applied.ok()) return std::string(applied.message());
  const auto effective = EffectiveJobConfig(job, "/base", rules);
  return effective.ok() ? "" : std::string(effective.status().message());
}

struct BadSetting {
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> message_has;
};

class RefusalTest : public ::testing::TestWithParam<BadSetting> {};

TEST_P(RefusalTest, NamesFieldValueAndFix) {
  const std::string message = JobValidationRefusal(GetParam().settings);
  for (const std::string& part : GetParam().message_has) EXPECT_THAT(message, HasSubstr(part));
}

constexpr char kAsyncConfigs[] = "strategy.a_sync_configs";
const std::string kK = std::string(kAsyncConfigs) + ".k_steps";
const std::string kHot = std::string(kAsyncConfigs) + ".hot_row_cache";

INSTANTIATE_TEST_SUITE_P(
    Job, RefusalTest,
    ::testing::Values(
        BadSetting{{{"version", "2"}}, {"version: 2", "newer"}},
        BadSetting{{{"name", "a/b"}}, {"name: 'a/b'", "A-Z a-z"}},
        BadSetting{{{"name", std::string(65, 'x')}}, {"1 to 64"}},
        BadSetting{{{"name", ".."}}, {"not starting with a dot"}},
        BadSetting{{{"worker_num", "0"}}, {"worker_num: 0", "1 to"}},
        BadSetting{{{"evaluate_only", "true"}}, {"evaluate_only", "initial_model"}},
        BadSetting{{{"evaluate_only", "true"}, {"initial_model", "m"}, {"data.eval_files", ""}},
                   {"evaluate_only", "data.eval_files"}},
        BadSetting{{{"initial_model", "m"}, {"initial_checkpoint", "c"}},
                   {"initial_checkpoint", "contradicts initial_model"}},
        BadSetting{{{"evaluate_only", "true"}, {"initial_checkpoint", "c"}},
                   {"initial_checkpoint", "contradicts evaluate_only"}},
        BadSetting{{{"output_dir", "https://host/out"}},
                   {"output_dir: 'https://host/out' is a URL", "s3://BUCKET/FOLDER"}},
        BadSetting{{{"output_dir", "s3:/bucket/out"}},
                   {"output_dir: 's3:/bucket/out'", "one slash"}},
        BadSetting{{{"output_dir", "s3://bucket"}}, {"'s3://bucket' names no folder in a bucket"}},
        BadSetting{{{"checkpoint.dir", "hdfs://h/c"}}, {"checkpoint.dir: 'hdfs://h/c' is a URL"}},
        BadSetting{{{"trace_file", "gs://b/t"}}, {"trace_file: 'gs://b/t' is a URL"}},
        BadSetting{{{"initial_model", "abfs://b/m"}}, {"initial_model: 'abfs://b/m' is a URL"}},
        BadSetting{{{"initial_checkpoint", "gs://b/c"}},
                   {"initial_checkpoint: 'gs://b/c' is a URL"}},
        BadSetting{{{"data.cache_dir", "s3://b/c"}}, {"data.cache_dir: 's3://b/c' is a URL"}},
        BadSetting{{{"data.train_files", "a,hdfs://b/a.csv"}},
                   {"data.train_files[1]: 'hdfs://b/a.csv' is a URL", "hdfs dfs -get"}},
        BadSetting{{{"data.eval_files", "gs://h/a.csv"}},
                   {"data.eval_files[0]: 'gs://h/a.csv' is a URL", "s3://h/a.csv"}},
        BadSetting{{{"features", "[]"}}, {"features: "}}));

INSTANTIATE_TEST_SUITE_P(
    Data, RefusalTest,
    ::testing::Values(
        BadSetting{{{"data.train_files", ""}}, {"data.train_files", "at least one file"}},
        BadSetting{{{"data.train_files", "a,,b"}}, {"data.train_files[1]: is empty"}},
        BadSetting{{{"data.format", "FORMAT_UNSPECIFIED"}}, {"data.format", "CRITEO_TSV"}},
        BadSetting{{{"data.csv.columns", "y,age,job"}},
                   {"data.csv.header", "contradicts", "columns"}},
        BadSetting{{{"data.csv.header", "false"}}, {"data.csv", "header: true"}},
        BadSetting{{{"data.csv.delimiter", "a\nb"}}, {"data.csv.delimiter", "line end"}},
        BadSetting{{{"data.csv.delimiter", "12345678901234567"}},
                   {"data.csv.delimiter", "at most"}},
        BadSetting{{{"data.csv.quote", "''"}}, {"data.csv.quote", "one character"}},
        BadSetting{{{"data.csv.quote", ","}}, {"data.csv.quote: ','", "data.csv.delimiter"}},
        BadSetting{{{"data.csv.escape", "\\\\"}}, {"data.csv.escape", "one character"}},
        BadSetting{{{"data.csv.escape", "\""}}, {"data.csv.escape", "doubled quote"}},
        BadSetting{{{"data.csv.decimal_mark", ";"}}, {"data.csv.decimal_mark: ';'"}},
        BadSetting{{{"data.csv", "{header: true quote: '' decimal_mark: ','}"}},
                   {"data.csv.decimal_mark", "data.csv.delimiter"}},
        BadSetting{{{"data.label.column", ""}}, {"data.label.column", "missing"}},
        BadSetting{{{"data.csv.header", "false"}, {"data.csv.columns", "yy,age,job"}},
                   {"data.label.column: 'y'", "did you mean 'yy'?"}},
        BadSetting{{{"data.csv.header", "false"}, {"data.csv.columns", "y,age,jab"}},
                   {"features[1].categorical.column: 'job'"}},
        BadSetting{{{"data.csv.header", "false"}, {"data.csv.columns", "y,age,job,job"}},
                   {"data.csv.columns[3]: 'job'"}},
        BadSetting{{{"data.weight_column", "y"}}, {"data.weight_column: 'y'", "label"}},
        BadSetting{{{"data.format", "CRITEO_TSV"}},
                   {"data.csv: has no effect", "data.label.column: 'y'"}},
        BadSetting{{{"data.label.negative", "a"}}, {"data.label.negative", "positive"}},
        BadSetting{{{"data.label.negative", "a,b"}, {"data.label.positive", "b"}},
                   {"'b' is also in positive"}},
        BadSetting{{{"data.label.positive", "b"}, {"data.label.positive_at_least", "1"}},
                   {"data.label.positive_at_least", "contradicts"}},
        BadSetting{{{"data.task_bytes", "3"}}, {"data.task_bytes: 3"}},
        BadSetting{{{"data.shuffle_lanes", "0"}}, {"data.shuffle_lanes: 0"}},
        BadSetting{{{"data.shuffle_window", "0"}}, {"data.shuffle_window: 0"}},
        BadSetting{{{"strategy.a_sync", "false"}, {"worker_num", "65"}},
                   {"data.shuffle_lanes: 64", "worker_num 65", "set data.shuffle_lanes to 65"}},
        BadSetting{{{"data.cache", "false"}, {"data.cache_dir", "c"}},
                   {"data.cache_dir: has no effect"}},
        BadSetting{{{"data.cache", "false"}, {"data.cache_max_bytes", "9"}},
                   {"data.cache_max_bytes: has no effect"}},
        BadSetting{{{"data.cache_max_bytes", "0"}}, {"data.cache_max_bytes: 0", "data.cache"}},
        BadSetting{{{"data.format", "MULTI_SLOT"}, {"data.label.column", ""}},
                   {"data.slots: ", "data.label.column: is missing"}},
        BadSetting{{{"data.format", "CRITEO_TSV"}},
                   {"features[0].numeric.column: 'age' is not a column of CRITEO_TSV"}},
        BadSetting{{{"data.format", "MULTI_SLOT"}, {"data.slots", "[{name: 'age'}, {name: 'yy'}]"}},
                   {"data.label.column: 'y' is not among data.slots; did you mean 'yy'?",
                    "features[1].categorical.column: 'job' is not among data.slots"}}));

TEST(JobValidationTest, SlotsAreChecked) {
  JobConfig job = GoodJob();
  job.mutable_data()->add_slots()->set_name("a");
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()),
              AllOf(HasSubstr("data.slots: "), HasSubstr("MULTI_SLOT")));
  job.mutable_data()->set_format(DataConfig::MULTI_SLOT);
  job.mutable_data()->clear_csv();
  for (const char* name : {"y", "age"}) job.mutable_data()->add_slots()->set_name(name);
  job.mutable_data()->add_slots()->set_name("job");
  EXPECT_TRUE(Effective(job, "/base").ok());
  job.mutable_data()->mutable_slots(2)->set_dim(2);
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()),
              AllOf(HasSubstr("'age'"), HasSubstr("age.0"), HasSubstr("age.1")));
  job.mutable_features(0)->mutable_numeric()->set_column("age.2");
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()),
              AllOf(HasSubstr("'age.2'"), HasSubstr("data.slots"), HasSubstr("'age.0'")));
  job.mutable_features(0)->mutable_numeric()->set_column("age.1");
  EXPECT_TRUE(Effective(job, "/base").ok());
  job.mutable_data()->add_slots()->set_name("a");
  job.mutable_data()->mutable_slots(4)->set_dim(100000);
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()),
              AllOf(HasSubstr("data.slots[4].name: 'a'"), HasSubstr("data.slots[4].dim: 100000")));
}

INSTANTIATE_TEST_SUITE_P(
    Exports, RefusalTest,
    ::testing::Values(
        BadSetting{{{"export.dir", "/x"}}, {"export", "no rule", "every_steps"}},
        BadSetting{{{"export.every_s", "-1"}}, {"export.every_s"}},
        BadSetting{{{"export.every_s", "5"}, {"export.every_steps", "5"}}, {"contradicts"}},
        BadSetting{{{"export.every_steps", "5"}, {"export.keep", "0"}}, {"export.keep"}},
        BadSetting{{{"export.every_steps", "5"}, {"checkpoint.keep", "0"}}, {"checkpoint.keep 0"}},
        BadSetting{{{"export.every_steps", "5"}}, {"export.dir", "output_dir"}},
        BadSetting{{{"export.every_steps", "5"}, {"export.dir", "gs://b/f"}}, {"export.dir"}},
        BadSetting{{{"export.every_steps", "5"}, {"export.dir", "/c"}, {"checkpoint.dir", "/c"}},
                   {"folder of the checkpoints"}},
        BadSetting{{{"export.every_steps", "5"},
                    {"export.dir", "/x"},
                    {"strategy.a_sync_configs.k_steps", "4"}},
                   {"Geo"}}));

INSTANTIATE_TEST_SUITE_P(
    Features, RefusalTest,
    ::testing::Values(BadSetting{{{"features", "[{name: 'a' numeric {}}, {name: 'a' numeric {}}]"}},
                                 {"features[1].name: 'a' is given twice"}},
                      BadSetting{{{"features", "{numeric {}}"}}, {"features[0]: has no name"}},
                      BadSetting{{{"features", "{name: 'a'}"}},
                                 {"features[0]: 'a' has no kind", "categorical"}}));

INSTANTIATE_TEST_SUITE_P(Model, RefusalTest,
                         ::testing::Values(BadSetting{{{"features[1].embedding_dim", "3"}},
                                                      {"features[1].embedding_dim: 3"}},
                                           BadSetting{{{"model.custom.options", "impossible"}},
                                                      {"model.custom.options: is impossible"}},
                                           BadSetting{{{"model.custom.options", "unused"}},
                                                      {"model.custom.options: has no effect"}}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, RefusalTest,
    ::testing::Values(BadSetting{{{"data.eval_files", ""}, {"eval.every_epochs", "2"}},
                                 {"eval.every_epochs: 2 has no effect without data.eval_files"}},
                      BadSetting{{{"data.eval_files", ""}, {"eval.batch_size", "9"}},
                                 {"eval.batch_size: 9 has no effect without data.eval_files"}},
                      BadSetting{
                          {{"evaluate_only", "true"},
                           {"initial_model", "m"},
                           {"checkpoint.save_final_model", "true"}},
                          {"checkpoint.save_final_model: true has no effect with evaluate_only"}}));

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, RefusalTest,
    ::testing::Values(BadSetting{{{"recovery.wait_s", "0"}}, {"recovery.wait_s: 0"}},
                      BadSetting{{{"recovery.wait_s", "inf"}}, {"recovery.wait_s: inf"}},
                      BadSetting{{{"recovery.replicas", "2"}}, {"recovery.replicas: 2"}},
                      BadSetting{{{"strategy.a_sync", "false"}, {"recovery.replicas", "1"}},
                                 {"recovery.replicas: contradicts mode sync"}},
                      BadSetting{{{"checkpoint.keep", "0"}, {"checkpoint.every_steps", "5"}},
                                 {"checkpoint.every_steps: contradicts checkpoint.keep 0"}},
                      BadSetting{{{"checkpoint.keep", "0"}, {"checkpoint.at_end", "true"}},
                                 {"checkpoint.at_end: contradicts checkpoint.keep 0"}},
                      BadSetting{{{"strategy.a_sync", "false"}, {"checkpoint.every_s", "-1"}},
                                 {"checkpoint.every_s: -1"}},
                      BadSetting{{{"strategy.a_sync", "false"}, {"checkpoint.every_s", "inf"}},
                                 {"checkpoint.every_s: inf"}},
                      BadSetting{{{"evaluate_only", "true"},
                                  {"initial_model", "m"},
                                  {"checkpoint.every_steps", "1"}},
                                 {"checkpoint.every_steps: has no effect with evaluate_only"}}));

TEST(JobValidationTest, OptimizersOfMissingPartsAreRefusedWithTheModelsReason) {
  FakeRules rules;
  rules.parts.no_dense = "is not dense";
  rules.parts.no_embedding = "is not embedded";
  rules.parts.no_wide = "is not wide";
  const std::vector<std::pair<std::string, std::string>> all = {
      {"optimizers.dense", "{sgd {}}"},
      {"optimizers.embedding", "{sgd {}}"},
      {"optimizers.wide", "{sgd {}}"}};
  EXPECT_EQ(JobValidationRefusal(all), "");
  EXPECT_THAT(JobValidationRefusal(all, rules),
              AllOf(HasSubstr("optimizers.dense: is not dense"),
                    HasSubstr("optimizers.embedding: is not embedded"),
                    HasSubstr("optimizers.wide: is not wide")));
  EXPECT_EQ(JobValidationRefusal({}, rules), "");
}

TEST(JobValidationTest, LimitsAndAdmissionOfATableAreAccepted) {
  for (const char* table :
       {"{name: 'e' max_gib: 0.5}", "{name: 'e' max_rows: 9 evict {}}",
        "{name: 'e' max_gib: 1 evict {score: NORM}}", "{name: 'e' admit {after: 2}}",
        "{name: 'e' admit {probability: 0.01 before: ZERO sketch_kib: 1024}}"}) {
    EXPECT_EQ(JobValidationRefusal({{"tables", table}}), "") << table;
  }
  EXPECT_EQ(JobValidationRefusal({{"tables", "{name: 'e' max_rows: 9 evict {half_life_days: 7}}"},
                                  {"data.day", "2026-11-01"}}),
            "");
}

TEST(JobValidationTest, AHotRowCacheNeedsAModelWithASparseTable) {
  const std::string cache = "strategy.a_sync_configs.hot_row_cache";
  FakeRules rules;
  rules.parts.no_embedding = "is not embedded";
  EXPECT_EQ(JobValidationRefusal({{cache, "{}"}}, rules), "");
  rules.parts.no_wide = "is not wide";
  EXPECT_THAT(JobValidationRefusal({{cache, "{}"}}, rules), HasSubstr(cache + ": "));
}

INSTANTIATE_TEST_SUITE_P(
    Strategy, RefusalTest,
    ::testing::Values(
        BadSetting{{{"strategy.a_sync", "false"}, {kK, "5"}},
                   {kK + ": 5 contradicts a_sync=false"}},
        BadSetting{{{kK, "-1"}}, {kK + ": -1 is negative"}},
        BadSetting{
            {{"strategy.a_sync", "false"}, {"strategy.a_sync_configs.gradients_to_wait", "2"}},
            {"gradients_to_wait: 2 contradicts mode sync"}},
        BadSetting{{{kK, "3"}, {"strategy.a_sync_configs.gradients_to_wait", "2"}},
                   {"gradients_to_wait: 2 contradicts mode geo"}},
        BadSetting{{{"strategy.a_sync_configs.gradients_to_wait", "0"}}, {"gradients_to_wait: 0"}},
        BadSetting{{{"strategy.a_sync", "false"}, {"strategy.a_sync_configs.max_staleness", "0"}},
                   {"max_staleness: 0 contradicts mode sync"}},
        BadSetting{{{kK, "3"}, {"strategy.a_sync_configs.max_staleness", "2"}},
                   {"max_staleness: 2 contradicts mode geo"}},
        BadSetting{{{"strategy.a_sync_configs.geo_merge", "SUM"}},
                   {"geo_merge: SUM contradicts mode async"}},
        BadSetting{{{"strategy.a_sync_configs.geo_cache_rows", "5"}},
                   {"geo_cache_rows: 5 contradicts"}},
        BadSetting{{{kK, "2"}, {"strategy.a_sync_configs.geo_cache_rows", "0"}},
                   {"geo_cache_rows: 0"}},
        BadSetting{{{"strategy.a_sync", "false"}, {kHot, "{}"}},
                   {kHot + ": contradicts mode sync", "remove it"}},
        BadSetting{{{kK, "3"}, {kHot, "{}"}}, {kHot + ": contradicts mode geo", "geo_cache_rows"}},
        BadSetting{{{kHot + ".rows", "0"}}, {kHot + ".rows: 0", "1 to 1000000000"}},
        BadSetting{{{kHot + ".rows", "1000000001"}}, {kHot + ".rows: 1000000001"}},
        BadSetting{{{kHot + ".max_staleness_steps", "0"}},
                   {kHot + ".max_staleness_steps: 0", "at least 1"}},
        BadSetting{{{kHot + ".max_staleness_steps", "3"}, {"train.pipeline_depth", "4"}},
                   {kHot + ".max_staleness_steps: 3", "at least 4"}},
        BadSetting{{{kHot, "{}"}, {"strategy.a_sync_configs.max_staleness", "2"}},
                   {kHot + ": contradicts max_staleness 2", "remove one"}},
        BadSetting{{{"train.pipeline_depth", "4"}, {"strategy.a_sync_configs.max_staleness", "2"}},
                   {"train.pipeline_depth: 4 contradicts max_staleness 2", "at most 3"}},
        BadSetting{{{"train.pipeline_depth", "2"}, {kK, "2"}},
                   {"pipeline_depth: 2 contradicts mode geo"}},
        BadSetting{{{"train.pipeline_depth", "0"}}, {"pipeline_depth: 0"}},
        BadSetting{{{"train.pipeline_depth", "65"}}, {"train.pipeline_depth: 65", "1 to 64"}},
        BadSetting{{{"strategy.sync_configs.on_worker_loss", "SHRINK"}},
                   {"on_worker_loss: SHRINK contradicts mode async", "remove it"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"data.assignment", "PER_RANK_FILES"},
                    {"strategy.sync_configs.on_worker_loss", "SHRINK"}},
                   {"on_worker_loss: SHRINK contradicts data.assignment", "use WAIT"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"recovery.max_losses", "0"},
                    {"strategy.sync_configs.on_worker_loss", "SHRINK"}},
                   {"on_worker_loss: SHRINK contradicts recovery.max_losses", "remove one"}}));

INSTANTIATE_TEST_SUITE_P(
    TrainAndTables, RefusalTest,
    ::testing::Values(
        BadSetting{{{"train.batch_size", "0"}}, {"train.batch_size: 0", "1 to 1048576"}},
        BadSetting{{{"train.batch_size", "1048577"}}, {"train.batch_size: 1048577"}},
        BadSetting{{{"eval.batch_size", "0"}}, {"eval.batch_size: 0"}},
        BadSetting{{{"train.epochs", "0"}}, {"train.epochs: 0", "evaluate_only"}},
        BadSetting{{{"train.epochs", "100001"}}, {"train.epochs: 100001"}},
        BadSetting{{{"train.threads", "0"}}, {"train.threads: 0"}},
        BadSetting{{{"train.log_every", "0"}}, {"train.log_every: 0"}},
        BadSetting{{{"train.step_timeout_s", "0"}}, {"train.step_timeout_s: 0"}},
        BadSetting{{{"train.prefetch_batches", "0"}}, {"train.prefetch_batches: 0"}},
        BadSetting{{{"train.reader_threads", "65"}}, {"train.reader_threads: 65"}},
        BadSetting{{{"optimizers.dense", "{learning_rate: 0.1}"}},
                   {"optimizers.dense: has no rule", "adam {}"}},
        BadSetting{{{"optimizers.wide", "{sgd {} learning_rate: -1}"}},
                   {"optimizers.wide.learning_rate: "}},
        BadSetting{{{"optimizers.clip_global_norm", "-1"}}, {"optimizers.clip_global_norm: -1"}},
        BadSetting{{{"tables", "{name: 'e' update_at: COLLECTIVE}"}},
                   {"tables[0].update_at: COLLECTIVE contradicts mode async", "a_sync=false"}},
        BadSetting{{{"tables", "{name: 'e' update_at: COLLECTIVE}"}, {kK, "2"}},
                   {"tables[0].update_at: COLLECTIVE contradicts mode geo", "a_sync=false"}},
        BadSetting{{{"tables", "{name: 'e' update_at: PSERVER}"}, {kK, "2"}},
                   {"tables[0].update_at: PSERVER contradicts mode geo", "k_steps to 0"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"tables", "{name: 'e' update_at: PSERVER}"},
                    {"strategy.sync_configs.comm_num", "2"}},
                   {"strategy.sync_configs.comm_num: has no effect", "update_at"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"tables", "{name: 'e' update_at: COLLECTIVE}"},
                    {"strategy.sync_configs.comm_num", "9"}},
                   {"strategy.sync_configs.comm_num: 9"}},
        BadSetting{{{"strategy.sync_configs.dense", "COLLECTIVE"}},
                   {"strategy.sync_configs.dense: COLLECTIVE contradicts mode async"}},
        BadSetting{{{"strategy.sync_configs.dense", "COLLECTIVE"}, {kK, "2"}},
                   {"strategy.sync_configs.dense: COLLECTIVE contradicts mode geo"}},
        BadSetting{{{"strategy.sync_configs.gradient_merge_steps", "4"}},
                   {"gradient_merge_steps: 4 contradicts mode async", "gradients_to_wait"}},
        BadSetting{{{"strategy.sync_configs.gradient_merge_steps", "4"}, {kK, "2"}},
                   {"gradient_merge_steps: 4 contradicts mode geo", "k_steps"}},
        BadSetting{
            {{"strategy.a_sync", "false"}, {"strategy.sync_configs.gradient_merge_steps", "0"}},
            {"gradient_merge_steps: 0", "1 to 1024"}},
        BadSetting{
            {{"strategy.a_sync", "false"}, {"strategy.sync_configs.gradient_merge_steps", "1025"}},
            {"gradient_merge_steps: 1025", "1 to 1024"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"train.batch_size", "4096"},
                    {"strategy.sync_configs.gradient_merge_steps", "257"}},
                   {"gradient_merge_steps: 257", "1052672", "1048576"}},
        BadSetting{{{"strategy.sync_configs.fuse_mb", "4"}},
                   {"strategy.sync_configs.fuse_mb: has no effect"}},
        BadSetting{{{"strategy.sync_configs.fuse_layers", "4"}},
                   {"strategy.sync_configs.fuse_layers: has no effect"}},
        BadSetting{{{"strategy.a_sync", "false"}, {"strategy.sync_configs.engine", "SHM"}},
                   {"strategy.sync_configs.engine: has no effect"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"strategy.sync_configs.dense", "COLLECTIVE"},
                    {"strategy.sync_configs.fuse_mb", "0"}},
                   {"strategy.sync_configs.fuse_mb: 0"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"strategy.sync_configs.dense", "COLLECTIVE"},
                    {"strategy.sync_configs.fuse_layers", "0"}},
                   {"strategy.sync_configs.fuse_layers: 0"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"strategy.sync_configs.dense", "COLLECTIVE"},
                    {"strategy.sync_configs.engine", "NCCL"},
                    {"strategy.sync_configs.comm_num", "2"}},
                   {"strategy.sync_configs.comm_num: 2 contradicts engine NCCL"}},
        BadSetting{{{"strategy.sync_configs.comm_num", "2"}},
                   {"strategy.sync_configs.comm_num: has no effect"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"strategy.sync_configs.dense", "COLLECTIVE"},
                    {"strategy.sync_configs.comm_num", "9"}},
                   {"strategy.sync_configs.comm_num: 9"}},
        BadSetting{{{"strategy.a_sync", "false"},
                    {"strategy.sync_configs.dense", "COLLECTIVE"},
                    {"strategy.sync_configs.comm_num", "0"}},
                   {"strategy.sync_configs.comm_num: 0"}},
        BadSetting{{{"tables", "{name: 'e' update_at: WORKER}"}},
                   {"tables[0].update_at: WORKER contradicts mode async"}},
        BadSetting{{{"tables", "{name: 'e' wire_type: BF16}"}, {kK, "2"}},
                   {"tables[0].wire_type: BF16 is refused in Geo"}},
        BadSetting{{{"tables", "{name: 'e' expire { after_steps: 5 }}"}, {kK, "2"}},
                   {"tables[0].expire: is refused in Geo"}},
        BadSetting{{{"tables", "{name: 'e' expire { min_count: 5 }}"}},
                   {"tables[0].expire: expires nothing"}},
        BadSetting{{{"tables", "{name: 'e' expire { after_days: 5 }}"}},
                   {"tables[0].expire.after_days: needs the day"}},
        BadSetting{{{"tables", "{name: 'e' expire { after_days: 5 }}"}, {"data.day", "2026-02-30"}},
                   {"data.day: '2026-02-30'"}},
        BadSetting{{{"data.day", "2026-02-03"}}, {"data.day: has no effect"}},
        BadSetting{{{"tables", "{num_shards: 3}"}}, {"tables[0]: has no name"}},
        BadSetting{{{"tables", "{name: 'e' max_gib: -1}"}}, {"tables[0].max_gib: -1", "GiB"}},
        BadSetting{{{"tables", "{name: 'e' max_gib: nan}"}}, {"tables[0].max_gib: nan"}},
        BadSetting{{{"tables", "{name: 'e' max_gib: 2 max_rows: 9}"}},
                   {"tables[0].max_gib", "max_rows 9", "keep one"}},
        BadSetting{{{"tables", "{name: 'e' evict {}}"}},
                   {"tables[0].evict: needs a limit", "max_rows", "max_gib"}},
        BadSetting{{{"tables", "{name: 'e' max_rows: 9 evict {half_life_days: 7}}"}},
                   {"tables[0].evict.half_life_days: needs the day", "data.day"}},
        BadSetting{{{"tables", "{name: 'e' max_rows: 9 evict {score: NORM half_life_days: 7}}"}},
                   {"tables[0].evict.half_life_days", "score COUNT", "score is NORM"}},
        BadSetting{{{"tables", "{name: 'e' max_rows: 9 evict {half_life_days: -1}}"}},
                   {"tables[0].evict.half_life_days: -1"}},
        BadSetting{{{"tables", "{name: 'e' max_rows: 9 evict {}}"}, {kK, "5"}},
                   {"tables[0].evict", "Geo"}},
        BadSetting{{{"tables", "{name: 'e' admit {}}"}},
                   {"tables[0].admit: needs after or probability"}},
        BadSetting{{{"tables", "{name: 'e' admit {after: 3 probability: 0.5}}"}},
                   {"tables[0].admit: after contradicts probability"}},
        BadSetting{{{"tables", "{name: 'e' admit {after: 1}}"}},
                   {"tables[0].admit.after: 1", "2 to 65535"}},
        BadSetting{{{"tables", "{name: 'e' admit {after: 65536}}"}},
                   {"tables[0].admit.after: 65536"}},
        BadSetting{{{"tables", "{name: 'e' admit {probability: 1}}"}},
                   {"tables[0].admit.probability: 1"}},
        BadSetting{{{"tables", "{name: 'e' admit {probability: nan}}"}},
                   {"tables[0].admit.probability: nan"}},
        BadSetting{{{"tables", "{name: 'e' admit {after: 3 sketch_kib: 1023}}"}},
                   {"tables[0].admit.sketch_kib: 1023", "65536"}},
        BadSetting{{{"tables", "{name: 'e' admit {after: 3}}"}, {kK, "5"}},
                   {"tables[0].admit", "Geo"}},
        BadSetting{{{"tables", "[{name: 'e'}, {name: 'e'}]"}},
                   {"tables[1].name: 'e' is given twice"}},
        BadSetting{{{"tables", "{name: 'e' num_shards: 70000}"}},
                   {"tables[0].num_shards: 70000"}}));

TEST(JobValidationTest, GoodSettingsOfEachModePass) {
  EXPECT_EQ(JobValidationRefusal({}), "");
  EXPECT_EQ(JobValidationRefusal({{"strategy.a_sync", "false"}}), "");
  EXPECT_EQ(JobValidationRefusal(
                {{"strategy.a_sync", "false"}, {"strategy.sync_configs.on_worker_loss", "SHRINK"}}),
            "");
  for (const char* dense : {"PSERVER", "COLLECTIVE"}) {
    EXPECT_EQ(JobValidationRefusal({{"strategy.a_sync", "false"},
                                    {"train.batch_size", "1024"},
                                    {"strategy.sync_configs.dense", dense},
                                    {"strategy.sync_configs.gradient_merge_steps", "1024"}}),
              "");
  }
  EXPECT_EQ(JobValidationRefusal({{kK, "100"}, {"strategy.a_sync_configs.geo_merge", "SUM"}}), "");
  EXPECT_EQ(JobValidationRefusal(
                {{"strategy.a_sync_configs.max_staleness", "3"}, {"train.pipeline_depth", "4"}}),
            "");
  EXPECT_EQ(JobValidationRefusal({{kHot, "{}"}}), "");
  EXPECT_EQ(
      JobValidationRefusal({{kHot + ".max_staleness_steps", "4"}, {"train.pipeline_depth", "4"}}),
      "");
  EXPECT_EQ(JobValidationRefusal({{"tables", "{name: 'e' wire_type: BF16}"}}), "");
  EXPECT_EQ(JobValidationRefusal(
                {{"tables", "{name: 'e' expire { after_days: 5 }}"}, {"data.day", "2026-02-03"}}),
            "");
  EXPECT_EQ(JobValidationRefusal(
                {{"strategy.a_sync", "false"},
                 {"tables", "[{name: 'e' update_at: COLLECTIVE}, {name: 'f' update_at: PSERVER}]"},
                 {"strategy.sync_configs.engine", "GLOO"}}),
            "");
  EXPECT_EQ(JobValidationRefusal(
                {{"evaluate_only", "true"}, {"initial_model", "m"}, {"data.train_files", ""}}),
            "");
}

TEST(JobValidationTest, AllProblemsAreReportedAtOnce) {
  EXPECT_THAT(JobValidationRefusal({{"train.batch_size", "0"}, {"worker_num", "0"}}),
              AllOf(HasSubstr("train.batch_size"), HasSubstr("\n"), HasSubstr("worker_num")));
}

// The fields of all problems, in the order in which they are found.
std::vector<std::string> PathsOf(const JobConfig& job) {
  std::vector<std::string> paths;
  for (const ConfigProblem& problem : FindProblems(job, FakeRules())) {
    EXPECT_NE(problem.text, "") << problem.path;
    paths.push_back(problem.path);
  }
  return paths;
}

TEST(JobValidationTest, EachProblemNamesItsFieldAndNoOther) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    std::string path;
    std::function<void(JobConfig*)> change;
  };
  const std::vector<Case> cases = {
      {"worker_num", [](JobConfig* job) { job->set_worker_num(65537); }},
      {"data.eval_files[1]", [](JobConfig* job) { job->mutable_data()->add_eval_files(""); }},
      {"data.label.positive_at_least",
       [](JobConfig* job) {
         job->mutable_data()->mutable_label()->set_positive_at_least(kInfinity);
       }},
      {std::string(kAsyncConfigs) + ".gradients_to_wait",
       [](JobConfig* job) {
         job->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(65537);
       }},
      {"checkpoint.every_s", [](JobConfig* job) { job->mutable_checkpoint()->set_every_s(kNan); }},
      {"recovery.wait_s", [](JobConfig* job) { job->mutable_recovery()->set_wait_s(kNan); }},
      {"train.early_stop.patience",
       [](JobConfig* job) {
         job->mutable_data()->add_eval_files("e");
         job->mutable_train()->mutable_early_stop()->set_patience(0);
       }},
      {"train.early_stop.min_delta",
       [](JobConfig* job) {
         job->mutable_data()->add_eval_files("e");
         job->mutable_train()->mutable_early_stop()->set_patience(1);
         job->mutable_train()->mutable_early_stop()->set_min_delta(kNan);
       }},
      {"train.early_stop",
       [](JobConfig* job) {
         job->mutable_data()->clear_eval_files();
         job->clear_eval();
         job->mutable_train()->mutable_early_stop()->set_patience(1);
       }},
      {"train.early_stop",
       [](JobConfig* job) {
         job->mutable_data()->add_eval_files("e");
         job->mutable_eval()->set_every_epochs(0);
         job->mutable_train()->mutable_early_stop()->set_patience(1);
       }},
      {"checkpoint.save",
       [](JobConfig* job) {
         job->mutable_data()->clear_eval_files();
         job->clear_eval();
         job->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
       }},
      {"checkpoint.save",
       [](JobConfig* job) {
         job->mutable_data()->add_eval_files("e");
         job->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
         job->mutable_checkpoint()->set_save_final_model(false);
       }},
      {"optimizers.clip_global_norm",
       [](JobConfig* job) {
         job->mutable_optimizers()->set_clip_global_norm(std::numeric_limits<float>::quiet_NaN());
       }},
      // One optimizer for all parts, and one for a single part.
      {"optimizers.all.learning_rate",
       [](JobConfig* job) {
         OptimizersConfig* const parts = job->mutable_optimizers();
         parts->mutable_all()->set_learning_rate(-1);
         *parts->mutable_dense() = *parts->mutable_wide() = *parts->mutable_embedding() =
             parts->all();
       }},
      {"optimizers.wide.learning_rate",
       [](JobConfig* job) { job->mutable_optimizers()->mutable_wide()->set_learning_rate(-1); }},
      {"tables[0].columns[1].optimizer",
       [](JobConfig* job) {
         TableConfig* const table = job->add_tables();
         table->set_name("e");
         table->add_columns();
         table->add_columns()->mutable_optimizer()->set_learning_rate(1);
       }},
      {"tables[0].columns[0].initializer.constant",
       [](JobConfig* job) {
         TableConfig* const table = job->add_tables();
         table->set_name("e");
         table->add_columns()->mutable_initializer()->set_constant(
             std::numeric_limits<float>::infinity());
       }},
  };
  const auto good = Effective(GoodJob(), "/base");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(PathsOf(*good), IsEmpty());
  for (const Case& c : cases) {
    JobConfig job = *good;
    c.change(&job);
    EXPECT_THAT(PathsOf(job), ElementsAre(c.path));
  }
}

TEST(JobValidationTest, AJobThatOnlyEvaluatesRefusesWhatOnlyTrainingUses) {
  JobConfig job = GoodJob();
  job.set_evaluate_only(true);
  job.set_initial_model("m");
  const auto effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  job = *effective;
  CheckpointConfig* const checkpoint = job.mutable_checkpoint();
  checkpoint->set_save_final_model(true);
  checkpoint->set_dir("c");
  checkpoint->set_every_steps(1);
  checkpoint->set_every_s(1);
  checkpoint->set_every_epochs(1);
  checkpoint->set_keep(1);
  checkpoint->set_at_end(true);
  checkpoint->set_save(CheckpointConfig::BEST);
  job.mutable_train()->mutable_early_stop()->set_patience(1);
  job.mutable_recovery()->set_replicas(1);
  EXPECT_THAT(PathsOf(job), UnorderedElementsAre("checkpoint.save_final_model", "checkpoint.dir",
                                                 "checkpoint.every_steps", "checkpoint.every_s",
                                                 "checkpoint.every_epochs", "checkpoint.at_end",
                                                 "checkpoint.keep", "checkpoint.save",
                                                 "train.early_stop", "recovery.replicas"));
}

TEST(JobValidationTest, OptionsAreNotCheckedAgainstAModeThatContradictsItself) {
  const auto good = Effective(GoodJob(), "/base");
  ASSERT_TRUE(good.ok()) << good.status();
  JobConfig job = *good;
  job.mutable_strategy()->set_a_sync(false);
  ASyncConfigs* const async = job.mutable_strategy()->mutable_a_sync_configs();
  async->set_k_steps(5);
  async->set_max_staleness(3);
  async->set_geo_cache_rows(9);
  EXPECT_THAT(PathsOf(job), ElementsAre(kK));
}

}  // namespace
}  // namespace sluice

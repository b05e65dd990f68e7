#include "common/config/resume_rules.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
name: "a"
worker_num: 2
output_dir: "/out"
data {
  format: CSV train_files: "t.csv" eval_files: "e.csv" shuffle: true shuffle_lanes: 64
  csv { delimiter: "," }
}
features { name: "age" numeric { column: "age" } }
features { name: "job" categorical { column: "job" } }
tables { name: "embedding" num_shards: 4 }
optimizers { all { adam { beta1: 0.9 } learning_rate: 0.001 } }
strategy { a_sync: false }
train { batch_size: 512 epochs: 2 seed: 3 }
checkpoint { every_s: 600 keep: 2 }
)";

JobConfig With(const std::vector<std::pair<std::string, std::string>>& settings) {
  JobConfig job;
  EXPECT_TRUE(ParseTextproto(kJob, "job", &job, nullptr).ok());
  for (const auto& [path, value] : settings) {
    const absl::Status applied = ApplyOverride({path, value, "--set"}, &job);
    EXPECT_TRUE(applied.ok()) << applied;
  }
  return job;
}

TEST(ResumeRulesTest, TheSameJobMayResume) {
  const absl::Status same = CheckResume(With({}), With({}));
  EXPECT_TRUE(same.ok()) << same;
}

TEST(ResumeRulesTest, SettingsThatDecideNoValuesAreFree) {
  for (const auto& [path, value] : std::vector<std::pair<std::string, std::string>>{
           {"version", "1"},
           {"name", "b"},
           {"worker_num", "5"},
           {"strategy.sync_configs.dense", "COLLECTIVE"},
           {"output_dir", "/other"},
           {"trace_file", "/t"},
           {"overwrite", "true"},
           {"single_writer", "true"},
           {"strategy.sync_configs.gradient_merge_steps", "1"},
           {"data.train_files", "./t.csv"},
           {"data.eval_files", "f.csv"},
           {"data.max_bad_lines", "3"},
           {"data.cache", "false"},
           {"data.cache_dir", "/c"},
           {"data.cache_max_bytes", "9"},
           {"train.epochs", "9"},
           {"train.log_every", "9"},
           {"train.prefetch_batches", "9"},
           {"train.reader_threads", "9"},
           {"train.threads", "9"},
           {"train.step_timeout_s", "9"},
           {"train.pin_threads", "true"},
           {"train.device_memory_fraction", "0.5"},
           {"eval.batch_size", "9"},
           {"checkpoint.every_steps", "9"},
           {"checkpoint.dir", "/d"},
           {"tables[0].num_shards", "16"},
           {"tables[0].max_rows", "1000"},
           {"tables", "[{name: 'embedding' max_gib: 2 evict {score: NORM}}]"},
           {"tables[0].update_at", "COLLECTIVE"},
           {"tables", "[]"},
           {"tables", "[{name: 'deep/0/bias' update_at: COLLECTIVE}, {name: 'embedding'}]"},
           {"initial_checkpoint", "/yesterday"},
       }) {
    const absl::Status may = CheckResume(With({}), With({{path, value}}));
    EXPECT_TRUE(may.ok()) << path << ": " << may;
  }
}

TEST(ResumeRulesTest, AHalfLifeMayComeAndGoWithTheDayOfTheData) {
  const JobConfig without = With({}), with = With({{"data.day", "2026-11-30"},
                                                   {"tables",
                                                    "[{name: 'embedding' max_rows: 9 "
                                                    "evict {half_life_days: 7}}]"}});
  EXPECT_TRUE(CheckResume(without, with).ok()) << CheckResume(without, with);
  EXPECT_TRUE(CheckResume(with, without).ok()) << CheckResume(with, without);
  const absl::Status refused = CheckResume(with, With({{"data.day", "2026-12-01"}}));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("data.day"));
}

TEST(ResumeRulesTest, AdmissionDecidesValues) {
  const std::string table = "[{name: 'embedding' admit {after: 3}}]";
  const absl::Status turned_on = CheckResume(With({}), With({{"tables", table}}));
  EXPECT_THAT(std::string(turned_on.message()), testing::HasSubstr("admit"));
  EXPECT_TRUE(CheckResume(With({{"tables", table}}), With({{"tables", table}})).ok());
}

TEST(ResumeRulesTest, TheWayGradientsAreExchangedIsFree) {
  const std::pair<std::string, std::string> dense = {"strategy.sync_configs.dense", "COLLECTIVE"};
  for (const char* setting : {"engine: GLOO", "fuse_mb: 4", "fuse_layers: 4", "comm_num: 4"}) {
    const std::vector<std::string> parts = absl::StrSplit(setting, ": ");
    const absl::Status may =
        CheckResume(With({dense}), With({dense, {"strategy.sync_configs." + parts[0], parts[1]}}));
    EXPECT_TRUE(may.ok()) << setting << ": " << may;
  }
}

TEST(ResumeRulesTest, SettingsThatDecideValuesAreRefusedByPath) {
  for (const auto& [path, value] : std::vector<std::pair<std::string, std::string>>{
           {"initial_model", "/m"},
           {"data.shuffle", "false"},
           {"data.shuffle_lanes", "32"},
           {"data.drop_last", "true"},
           {"data.assignment", "PER_RANK_FILES"},
           {"data.csv.delimiter", ";"},
           {"data.weight_column", "w"},
           {"features[0].name", "aged"},
           {"features[1].categorical.column", "j"},
           {"optimizers.all.learning_rate", "0.01"},
           {"tables[0].wire_type", "BF16"},
           {"optimizers.all.adam.beta1", "0.8"},
           {"optimizers.clip_global_norm", "1"},
           {"strategy.a_sync", "true"},
           {"strategy.sync_configs.gradient_merge_steps", "4"},
           {"train.batch_size", "256"},
           {"train.seed", "4"},
           {"train.compute_dtype", "BF16"},
       }) {
    const absl::Status refused = CheckResume(With({}), With({{path, value}}));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path));
  }
  EXPECT_THAT(
      std::string(CheckResume(With({}), With({{"train.batch_size", "256"}, {"worker_num", "4"}}))
                      .message()),
      HasSubstr("train.batch_size is 256, but was 512"));
}

TEST(ResumeRulesTest, OfTablesOnlyWhatDecidesValuesCounts) {
  const std::string rule = "{name: 'wide/bias' optimizer {sgd {}}}";
  const auto tables = [](const std::string& text) { return With({{"tables", "[" + text + "]"}}); };
  const JobConfig saved = tables("{name: 'deep/0/bias' update_at: COLLECTIVE}, " + rule);
  for (const std::string& same :
       {rule, rule + ", {name: 'deep/0/bias'}",
        rule + ", {name: 'embedding' update_at: PSERVER}, {name: 'deep/0/bias' num_shards: 1}"}) {
    const absl::Status may = CheckResume(saved, tables(same));
    EXPECT_TRUE(may.ok()) << same << ": " << may;
    EXPECT_TRUE(CheckResume(tables(same), saved).ok()) << same;
  }
  EXPECT_THAT(std::string(CheckResume(saved, With({})).message()), HasSubstr("wide/bias"));
  EXPECT_THAT(
      std::string(CheckResume(saved, tables("{name: 'deep/0/bias' optimizer {sgd {}}}, " + rule))
                      .message()),
      HasSubstr("tables[0].optimizer"));
}

TEST(ResumeRulesTest, NewAndMissingFeaturesAreNamed) {
  JobConfig more = With({});
  more.add_features()->set_name("new");
  EXPECT_THAT(std::string(CheckResume(With({}), more).message()), HasSubstr("features[2]"));
  EXPECT_THAT(std::string(CheckResume(more, With({})).message()), HasSubstr("features[2]"));
}

TEST(ResumeRulesTest, AProgramsOwnInitialValuesMayBeElsewhere) {
  const auto launched = [](const std::string& initial_model, const std::string& own) {
    JobConfig job = With({{"initial_model", initial_model}});
    job.mutable_model()->mutable_program()->set_digest("d");
    job.mutable_model()->mutable_program()->set_initial_values(own);
    return job;
  };
  const absl::Status may = CheckResume(launched("/1/v", "/1/v"), launched("/2/v", "/2/v"));
  EXPECT_TRUE(may.ok()) << may;
  const absl::Status same = CheckResume(launched("/m", "/1/v"), launched("/m", "/2/v"));
  EXPECT_TRUE(same.ok()) << same;
  const JobConfig users = launched("/m", "/2/v");
  EXPECT_THAT(std::string(CheckResume(launched("/1/v", "/1/v"), users).message()),
              HasSubstr("initial_model is \"/m\", but was \"/1/v\""));
  JobConfig changed = launched("/2/v", "/2/v");
  changed.mutable_model()->mutable_program()->set_digest("e");
  EXPECT_THAT(std::string(CheckResume(launched("/1/v", "/1/v"), changed).message()),
              HasSubstr("model.program.digest"));
}

absl::Status Submit(const JobConfig& job, bool resume, bool allow_older) {
  SubmitJobRequest request;
  *request.mutable_config() = job;
  request.set_resume(resume);
  request.set_allow_older(allow_older);
  return CheckSubmission(request);
}

TEST(ResumeRulesTest, ASubmissionThatCannotResumeIsRefused) {
  EXPECT_TRUE(Submit(With({}), false, false).ok());
  EXPECT_TRUE(Submit(With({}), true, false).ok());
  EXPECT_TRUE(Submit(With({}), true, true).ok());
  const auto refusal = [](const JobConfig& job, bool resume, bool allow_older) {
    const absl::Status status = Submit(job, resume, allow_older);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(With({}), false, true), HasSubstr("--resume"));
  EXPECT_THAT(refusal(With({{"output_dir", ""}}), true, false), HasSubstr("--output_dir"));
  EXPECT_TRUE(Submit(With({{"output_dir", ""}, {"checkpoint.dir", "/c"}}), true, false).ok());
  EXPECT_THAT(refusal(With({{"evaluate_only", "true"}}), true, false), HasSubstr("evaluate_only"));
  const JobConfig geo =
      With({{"strategy.a_sync", "true"}, {"strategy.a_sync_configs.k_steps", "5"}});
  EXPECT_TRUE(Submit(geo, true, false).ok());
}

}  // namespace
}  // namespace sluice

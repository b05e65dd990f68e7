#include "model/wide_deep/wide_deep_rules.h"

#include <string>
#include <utility>
#include <vector>

#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kGoodJob[] = R"(
  data { format: CSV train_files: "train.csv" csv { header: true } label { column: "y" } }
  features { name: "age" numeric {} }
  features { name: "job" categorical {} }
  model { wide_deep { hidden_units: [8, 4] embedding_dim: 4 } }
)";

JobConfig GoodJob() {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGoodJob, &job));
  return job;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<JobConfig> Effective(const Settings& settings) {
  JobConfig job = GoodJob();
  std::vector<ConfigOverride> overrides;
  for (const auto& [path, value] : settings) overrides.push_back({path, value, "--set"});
  const absl::Status applied = ApplyOverrides(overrides, &job);
  EXPECT_TRUE(applied.ok()) << applied;
  return EffectiveJobConfig(job, "/base", WideDeepRules());
}

std::string ManyLayers(int layers) {
  std::string text = "8";
  for (int i = 1; i < layers; ++i) text += ",8";
  return text;
}

struct BadSetting {
  Settings settings;
  std::vector<std::string> message_has;
};

class WideDeepRefusalTest : public ::testing::TestWithParam<BadSetting> {};

TEST_P(WideDeepRefusalTest, NamesFieldValueAndFix) {
  const absl::Status status = Effective(GetParam().settings).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part : GetParam().message_has)
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(WideDeepRulesTest, OnlyFeaturesOfTheDeepPartNeedAWidth) {
  const Settings widths = {{"features",
                            "[{name: 'a' categorical {} embedding_dim: 8}, "
                            "{name: 'b' categorical {} in_deep: false}]"},
                           {"model.wide_deep.embedding_dim", "0"}};
  const auto job = Effective(widths);
  EXPECT_TRUE(job.ok()) << job.status();
}

INSTANTIATE_TEST_SUITE_P(
    Values, WideDeepRefusalTest,
    ::testing::Values(
        BadSetting{{{"features[1].embedding_dim", "0"}},
                   {"features[1].embedding_dim: 0", "1 to 4096"}},
        BadSetting{{{"features[1].embedding_dim", "4097"}},
                   {"features[1].embedding_dim: 4097", "1 to 4096"}},
        BadSetting{{{"features[1].table", "a/b"}}, {"features[1].table: ", "\"a/b\"", "A-Z"}},
        BadSetting{{{"features[1].key", "RAW"}, {"features[1].categorical.vocabulary", "a"}},
                   {"features[1].categorical.vocabulary", "'job'", "RAW"}},
        BadSetting{{{"features",
                     "[{name: 'a' categorical {} embedding: 'e'}, "
                     "{name: 'b' categorical {} embedding: 'e' embedding_dim: 8}]"}},
                   {"features[1].embedding_dim: ", "\"b\"", "\"a\"", "8", "4"}},
        BadSetting{{{"features",
                     "[{name: 'a' categorical {} embedding_dim: 8}, "
                     "{name: 'b' categorical {}}]"},
                    {"model.wide_deep.embedding_dim", "0"}},
                   {"model.wide_deep.embedding_dim: is missing"}},
        BadSetting{{{"model.wide_deep.hidden_units", "8,0"}},
                   {"model.wide_deep.hidden_units[1]: 0"}},
        BadSetting{{{"model.wide_deep.hidden_units", "8,65537"}},
                   {"model.wide_deep.hidden_units[1]: 65537"}},
        BadSetting{{{"model.wide_deep.hidden_units", ManyLayers(1001)}},
                   {"model.wide_deep.hidden_units: has 1001 layers", "1000"}},
        BadSetting{{{"model.wide_deep.embedding_dim", "0"}},
                   {"model.wide_deep.embedding_dim: is missing"}},
        BadSetting{{{"model.wide_deep.embedding_dim", "4097"}},
                   {"model.wide_deep.embedding_dim: 4097"}},
        BadSetting{{{"model.wide_deep.dropout", "1"}}, {"model.wide_deep.dropout: 1"}},
        BadSetting{{{"model.wide_deep.dropout", "-0.1"}}, {"model.wide_deep.dropout: -0.1"}},
        BadSetting{{{"model.wide_deep.dropout", "nan"}}, {"model.wide_deep.dropout: nan"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""},
                    {"model.wide_deep.wide_numeric", "false"},
                    {"model.wide_deep.wide_categorical", "false"}},
                   {"model.wide_deep: "}},
        BadSetting{{{"model.wide_deep.embedding_initializer", "{uniform {min: 1 max: -1}}"}},
                   {"model.wide_deep.embedding_initializer.uniform: 1 to -1"}},
        BadSetting{{{"model.wide_deep.embedding_initializer", "{normal {stddev: -1}}"}},
                   {"model.wide_deep.embedding_initializer.normal: stddev -1"}}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, WideDeepRefusalTest,
    ::testing::Values(
        BadSetting{{{"model.wide_deep.dropout", "0.5"}, {"model.wide_deep.hidden_units", ""}},
                   {"model.wide_deep.dropout: has no effect"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""}},
                   {"model.wide_deep.embedding_dim: 4 has no effect without hidden_units"}},
        BadSetting{{{"features[1].in_deep", "false"}},
                   {"model.wide_deep.embedding_dim: 4 has no effect", "in_deep"}},
        BadSetting{{{"features",
                     "[{name: 'a' categorical {}}, "
                     "{name: 'b' categorical {} embedding_dim: 8 in_deep: false}]"}},
                   {"features[1].embedding_dim: 8", "'b'", "no effect"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""},
                    {"model.wide_deep.embedding_dim", "0"},
                    {"features[1].embedding_dim", "8"}},
                   {"features[1].embedding_dim: 8", "no effect"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""},
                    {"model.wide_deep.embedding_dim", "0"},
                    {"model.wide_deep.embedding_initializer", "{constant: 1}"}},
                   {"embedding_initializer: has no effect without hidden_units"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""}, {"optimizers.embedding", "{sgd {}}"}},
                   {"optimizers.embedding: has no effect without hidden_units"}},
        BadSetting{{{"model.wide_deep.wide_categorical", "false"}, {"optimizers.wide", "{sgd {}}"}},
                   {"optimizers.wide: has no effect", "model.wide_deep.wide_categorical"}},
        BadSetting{{{"features[1].in_wide", "false"}, {"optimizers.wide", "{sgd {}}"}},
                   {"optimizers.wide: has no effect", "in_wide"}},
        BadSetting{{{"model.wide_deep.hidden_units", ""},
                    {"model.wide_deep.wide_numeric", "false"},
                    {"optimizers.dense", "{sgd {}}"}},
                   {"optimizers.dense: has no effect without hidden_units"}},
        BadSetting{{{"strategy.a_sync_configs.hot_row_cache", "{}"},
                    {"model.wide_deep.hidden_units", ""},
                    {"model.wide_deep.embedding_dim", "0"},
                    {"model.wide_deep.wide_categorical", "false"}},
                   {"strategy.a_sync_configs.hot_row_cache: has no effect"}}));

// A job whose only category has `rows` rows in dense tables.
Settings WithRows(const std::string& rows, const Settings& more = {}) {
  Settings settings = {{"features[1].categorical", "{ dense: true hash_buckets: " + rows + " }"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

INSTANTIATE_TEST_SUITE_P(
    DenseFeatures, WideDeepRefusalTest,
    ::testing::Values(
        BadSetting{{{"features[1].categorical.dense", "true"}},
                   {"features[1].categorical.dense: true", "hash_buckets"}},
        BadSetting{WithRows("100", {{"features[1].embedding_dim", "8"}}),
                   {"features[1].embedding_dim: 8", "dense: true", "4"}},
        BadSetting{WithRows("100", {{"features[1].table", "t"}}), {"features[1].table", "dense"}},
        BadSetting{{{"features[0].numeric.dense", "true"}},
                   {"features[0].numeric.dense: true has no effect"}},
        BadSetting{WithRows("100", {{"features[0].numeric.boundaries", "20,30"}}),
                   {"features[0].numeric.dense: false", "'age'", "'job'"}},
        // 4 GiB hold 2^28 rows of 4 floats, and 2^30 of one.
        BadSetting{WithRows("268435457"),
                   {"features[1].categorical.dense: true", "'job'", "268435457", "sparse table"}},
        BadSetting{WithRows("1073741825", {{"features[1].in_deep", "false"},
                                           {"model.wide_deep.embedding_dim", "0"}}),
                   {"features[1].categorical.dense: true", "wide part"}},
        BadSetting{WithRows("100", {{"strategy.a_sync_configs.hot_row_cache", "{}"}}),
                   {"strategy.a_sync_configs.hot_row_cache: has no effect", "dense: true"}},
        BadSetting{WithRows("100", {{"strategy.a_sync_configs.k_steps", "5"},
                                    {"strategy.a_sync_configs.geo_cache_rows", "1000"}}),
                   {"strategy.a_sync_configs.geo_cache_rows: 1000 has no effect", "dense: true"}}));

TEST(WideDeepRulesTest, DenseFeaturesPassInEveryModeAndTwice) {
  for (const Settings& mode :
       {Settings{}, Settings{{"strategy.a_sync", "false"}},
        Settings{{"strategy.a_sync", "false"}, {"strategy.sync_configs.dense", "COLLECTIVE"}},
        Settings{{"strategy.a_sync_configs.k_steps", "5"}}}) {
    for (const char* rows : {"1", "268435456"}) {
      const auto once = Effective(WithRows(rows, mode));
      ASSERT_TRUE(once.ok()) << once.status();
      EXPECT_FALSE(once->strategy().a_sync_configs().has_geo_cache_rows());
      EXPECT_TRUE(once->optimizers().has_wide() && once->optimizers().has_embedding());
      const auto twice = EffectiveJobConfig(*once, "/base", WideDeepRules());
      ASSERT_TRUE(twice.ok()) << twice.status();
      EXPECT_EQ(ToTextproto(*once), ToTextproto(*twice));
    }
  }
}

TEST(WideDeepRulesTest, GoodJobsPass) {
  EXPECT_TRUE(Effective({}).ok());
  EXPECT_TRUE(
      Effective({{"model.wide_deep.hidden_units", ""}, {"model.wide_deep.embedding_dim", "0"}})
          .ok());
  EXPECT_TRUE(Effective({{"features[1].embedding_dim", "4"}}).ok());
  EXPECT_TRUE(Effective({{"features[1].embedding_dim", "16"}}).ok());
  EXPECT_TRUE(
      Effective({{"features[1].embedding_dim", "16"}, {"model.wide_deep.embedding_dim", "0"}})
          .ok());
  EXPECT_TRUE(Effective({{"features[1].key", "RAW"}, {"features[1].table", "jobs"}}).ok());
  // The row of a value is the same in both features, and one of them has its embedding.
  EXPECT_TRUE(Effective({{"features",
                          "[{name: 'a' categorical {} embedding_dim: 8}, "
                          "{name: 'b' categorical {} embedding: 'a' embedding_dim: 8 "
                          "in_deep: false}]"}})
                  .ok());
  EXPECT_TRUE(Effective({{"strategy.a_sync_configs.hot_row_cache", "{}"}}).ok());
}

TEST(WideDeepRulesTest, EveryDefaultIsFilledIn) {
  const auto job = Effective({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->model().wide_deep().wide_numeric());
  EXPECT_TRUE(job->model().wide_deep().wide_categorical());
  EXPECT_EQ(job->model().wide_deep().embedding_initializer().uniform().min(), -0.05f);
  EXPECT_EQ(job->model().wide_deep().embedding_initializer().uniform().max(), 0.05f);
  EXPECT_EQ(job->optimizers().wide().learning_rate(), 0.001f);
}

TEST(WideDeepRulesTest, DefaultsKeepTheJobsOwnValues) {
  const auto job = Effective({{"model.wide_deep.wide_numeric", "false"},
                              {"model.wide_deep.embedding_initializer", "{constant: 0.5}"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->model().wide_deep().wide_numeric());
  EXPECT_EQ(job->model().wide_deep().embedding_initializer().constant(), 0.5f);
}

TEST(WideDeepRulesTest, MissingPartsGetNoDefaultsSoThatAnEffectiveJobIsAccepted) {
  const auto once = Effective({{"model.wide_deep.hidden_units", ""},
                               {"model.wide_deep.embedding_dim", "0"},
                               {"model.wide_deep.wide_categorical", "false"}});
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_FALSE(once->model().wide_deep().has_embedding_initializer());
  EXPECT_TRUE(once->optimizers().has_dense());
  EXPECT_FALSE(once->optimizers().has_wide() || once->optimizers().has_embedding());
  const auto twice = EffectiveJobConfig(*once, "/base", WideDeepRules());
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(ToTextproto(*once), ToTextproto(*twice));
}

}  // namespace
}  // namespace sluice

#include "model/without_pservers.h"

#include <string>

#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/textproto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNumbers[] = R"(features { name: "x" numeric {} } features { name: "y" numeric {} }
    model { wide_deep { hidden_units: 4 } } )";
constexpr char kKeys[] = R"(features { name: "x" numeric {} }
    features { name: "age" numeric { boundaries: 30 } } features { name: "city" categorical {} }
    model { wide_deep { hidden_units: 4 embedding_dim: 2 } } )";

JobConfig WithoutPserversJob(const std::string& more) {
  const std::string text =
      R"(data { format: CSV train_files: "/t.csv" eval_files: "/e.csv" csv { header: true } label { column: "l" } } )" +
      more;
  JobConfig job;
  EXPECT_TRUE(ParseTextproto(text, "job", &job, nullptr).ok());
  const auto effective = EffectiveJobConfig(job, "", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return *effective;
}

std::string Refusal(const std::string& more) {
  JobConfig job = WithoutPserversJob(more);
  const auto fitted = FitWithoutPservers(BuiltInSpecs(), &job);
  EXPECT_EQ(fitted.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(fitted.status().message());
}

TEST(WithoutPserversTest, SyncJobsKeepTheirTablesOnTheWorkers) {
  JobConfig job = WithoutPserversJob(std::string(kNumbers) + "strategy { a_sync: false }");
  EXPECT_FALSE(*NeedsNoPservers(BuiltInSpecs(), job));
  const auto changed = FitWithoutPservers(BuiltInSpecs(), &job);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(*changed, HasSubstr("sync_configs.dense"));
  EXPECT_EQ(job.strategy().sync_configs().dense(), SyncConfigs::COLLECTIVE);
  EXPECT_TRUE(job.strategy().sync_configs().has_fuse_mb()) << "the job is effective";
  EXPECT_TRUE(*NeedsNoPservers(BuiltInSpecs(), job));
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  for (const TableConfig& table : (*model)->tables())
    EXPECT_EQ(table.update_at(), TableConfig::COLLECTIVE) << table.name();
}

TEST(WithoutPserversTest, AJobThatAsksForItStaysAsItIs) {
  JobConfig job = WithoutPserversJob(
      std::string(kNumbers) + "strategy { a_sync: false sync_configs { dense: COLLECTIVE } }");
  const std::string before = job.SerializeAsString();
  const auto changed = FitWithoutPservers(BuiltInSpecs(), &job);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(*changed, "");
  EXPECT_EQ(job.SerializeAsString(), before);
}

std::string At(const std::string& name, const char* at) {
  return "tables { name: \"" + name + "\" update_at: " + at + " } ";
}

TEST(WithoutPserversTest, AJobThatNamesEachTableStaysAsItIs) {
  std::string text = std::string(kNumbers) + "strategy { a_sync: false } ";
  const auto model = ModelSpec::Create(WithoutPserversJob(text), BuiltInSpecs());
  for (const TableConfig& table : (*model)->tables()) text += At(table.name(), "COLLECTIVE");
  JobConfig job = WithoutPserversJob(text);
  EXPECT_TRUE(*NeedsNoPservers(BuiltInSpecs(), job));
  EXPECT_TRUE(job.strategy().sync_configs().has_fuse_mb()) << "the job is effective";
  const auto changed = FitWithoutPservers(BuiltInSpecs(), &job);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(*changed, "");
  EXPECT_EQ(job.strategy().sync_configs().dense(), SyncConfigs::PSERVER);
}

TEST(WithoutPserversTest, TablesThatWouldStayOnPserversAreNamed) {
  const std::string sync = std::string(kNumbers) + "strategy { a_sync: false } ";
  EXPECT_THAT(Refusal(sync + At("deep/0/bias", "COLLECTIVE")),
              AllOf(HasSubstr("\"deep/0/weight\""), Not(HasSubstr("\"deep/0/bias\"")),
                    HasSubstr("update_at"), HasSubstr("--server_num=1")));
  const std::string all =
      std::string(kNumbers) + "strategy { a_sync: false sync_configs { dense: COLLECTIVE } } ";
  for (const std::string& strategy : {sync, all}) {
    EXPECT_THAT(Refusal(strategy + At("deep/0/bias", "PSERVER")),
                AllOf(HasSubstr("\"deep/0/bias\""), Not(HasSubstr("\"deep/0/weight\""))));
  }
  EXPECT_FALSE(
      *NeedsNoPservers(BuiltInSpecs(), WithoutPserversJob(all + At("deep/0/bias", "PSERVER"))));
}

TEST(WithoutPserversTest, AJobThatOnlyEvaluatesMayNameAnyTables) {
  for (const char* at : {"COLLECTIVE", "PSERVER"}) {
    JobConfig job =
        WithoutPserversJob(std::string(kNumbers) + "strategy { a_sync: false } " +
                           At("deep/0/bias", at) + R"( evaluate_only: true initial_model: "/m" )");
    EXPECT_FALSE(*NeedsNoPservers(BuiltInSpecs(), job));
    const auto changed = FitWithoutPservers(BuiltInSpecs(), &job);
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_TRUE(*NeedsNoPservers(BuiltInSpecs(), job));
  }
}

TEST(WithoutPserversTest, AsyncAndGeoAreRefused) {
  EXPECT_THAT(Refusal(kNumbers), AllOf(HasSubstr("async"), HasSubstr("--a_sync=false"),
                                       HasSubstr("--server_num=1"), Not(HasSubstr("features"))));
  EXPECT_THAT(Refusal(std::string(kNumbers) + "strategy { a_sync_configs { k_steps: 5 } }"),
              AllOf(HasSubstr("geo"), HasSubstr("--a_sync=false")));
}

TEST(WithoutPserversTest, FeaturesOfSparseTablesAreNamed) {
  for (const char* strategy : {"strategy { a_sync: false }",
                               "strategy { a_sync: false sync_configs { dense: COLLECTIVE } }"}) {
    EXPECT_THAT(Refusal(std::string(kKeys) + strategy),
                AllOf(HasSubstr("\"age\", \"city\" have keys in the sparse table embedding"),
                      HasSubstr("dense: true"), Not(HasSubstr("\"x\""))));
  }
  EXPECT_THAT(Refusal(kKeys), AllOf(HasSubstr("--a_sync=false"), HasSubstr("\"city\"")))
      << "all problems are named at once";
}

// A feature whose keys have a bound only lacks `dense: true`, and a numeric feature has no
// hash_buckets.
TEST(WithoutPserversTest, OnlyFeaturesWithoutABoundAreToldToHaveHashBuckets) {
  const std::string bounded = R"(features { name: "age" numeric { boundaries: 30 } }
      features { name: "sex" categorical { vocabulary: "m" vocabulary: "f" } }
      features { name: "job" categorical { hash_buckets: 50 } } )";
  const std::string more =
      "model { wide_deep { hidden_units: 4 embedding_dim: 2 } } strategy { a_sync: false }";
  EXPECT_THAT(Refusal(bounded + more),
              AllOf(HasSubstr("\"age\", \"sex\", \"job\""), HasSubstr("`dense: true`"),
                    Not(HasSubstr("hash_buckets"))));
  const std::string text = Refusal(bounded + R"(features { name: "city" categorical {} } )" + more);
  ASSERT_THAT(text, HasSubstr("hash_buckets"));
  const std::string after = text.substr(text.find("hash_buckets"));
  EXPECT_THAT(after, AllOf(HasSubstr("\"city\""), Not(HasSubstr("\"age\"")),
                           Not(HasSubstr("\"sex\"")), Not(HasSubstr("\"job\""))));
}

TEST(WithoutPserversTest, AJobThatOnlyEvaluatesMayHaveAnyMode) {
  for (const char* strategy : {"", "strategy { a_sync: false }"}) {
    JobConfig job = WithoutPserversJob(std::string(kNumbers) + strategy +
                                       R"( evaluate_only: true initial_model: "/m" )");
    const auto changed = FitWithoutPservers(BuiltInSpecs(), &job);
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_EQ(ModeOf(job.strategy()), Mode::kSync);
    EXPECT_TRUE(*NeedsNoPservers(BuiltInSpecs(), job));
  }
}

TEST(WithoutPserversTest, AJobWithSparseTablesThatOnlyEvaluatesPullsItsDenseTables) {
  const JobConfig job = WithoutPserversJob(std::string(kKeys) +
                                           R"( evaluate_only: true initial_model: "/m"
                               strategy { a_sync: false sync_configs { dense: COLLECTIVE } } )");
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  for (const TableConfig& table : (*model)->tables())
    EXPECT_NE(table.update_at(), TableConfig::COLLECTIVE) << table.name();
}

}  // namespace
}  // namespace sluice

#include <cstdlib>

#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobConfig With(const std::string& path, const std::string& value) {
  JobConfig job;
  const absl::Status status = ApplyOverride({path, value, "--set"}, &job);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

std::string Error(const std::string& path, const std::string& value,
                  const std::string& origin = "--set") {
  JobConfig job;
  const absl::Status status = ApplyOverride({path, value, origin}, &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(job.ByteSizeLong(), 0) << "a refused override changed the job";
  return std::string(status.message());
}

TEST(OverrideTest, EveryScalarKindIsSet) {
  EXPECT_EQ(With("train.batch_size", "512").train().batch_size(), 512);
  EXPECT_EQ(With("strategy.a_sync_configs.k_steps", "-3").strategy().a_sync_configs().k_steps(),
            -3);
  EXPECT_EQ(With("train.seed", "18446744073709551615").train().seed(), UINT64_MAX);
  EXPECT_FLOAT_EQ(With("model.wide_deep.dropout", "0.25").model().wide_deep().dropout(), 0.25f);
  EXPECT_EQ(With("data.label.positive_at_least", "1e3").data().label().positive_at_least(), 1000);
  EXPECT_EQ(With("name", "a b").name(), "a b");
  EXPECT_EQ(With("data.format", "tsv").data().format(), DataConfig::TSV);
  EXPECT_TRUE(With("strategy.a_sync", "false").strategy().has_a_sync());
  EXPECT_TRUE(With("evaluate_only", "1").evaluate_only());
}

TEST(OverrideTest, RepeatedFieldsAreReplaced) {
  JobConfig job;
  job.mutable_model()->mutable_wide_deep()->add_hidden_units(7);
  ASSERT_TRUE(ApplyOverride({"model.wide_deep.hidden_units", "100, 50", "--set"}, &job).ok());
  EXPECT_THAT(job.model().wide_deep().hidden_units(), ElementsAre(100, 50));
  ASSERT_TRUE(ApplyOverride({"model.wide_deep.hidden_units", "", "--set"}, &job).ok());
  EXPECT_EQ(job.model().wide_deep().hidden_units_size(), 0);
  EXPECT_THAT(With("data.train_files", "a,b").data().train_files(), ElementsAre("a", "b"));
  EXPECT_THAT(With("data.train_files", "['a,b', 'c']").data().train_files(),
              ElementsAre("a,b", "c"));
}

TEST(OverrideTest, MessagesInBracesReplaceTheOldOnes) {
  JobConfig job = With("optimizers.all", "{adam {} learning_rate: 0.5}");
  EXPECT_EQ(job.optimizers().all().learning_rate(), 0.5f);
  ASSERT_TRUE(ApplyOverride({"optimizers.all", "{sgd {}}", "--set"}, &job).ok());
  EXPECT_TRUE(job.optimizers().all().has_sgd());
  EXPECT_FALSE(job.optimizers().all().has_learning_rate());
  EXPECT_EQ(With("tables", "[{name: 'a'}, {name: 'b'}]").tables(1).name(), "b");
  EXPECT_EQ(With("tables", "{name: 'a'}").tables_size(), 1);
}

TEST(OverrideTest, AnEmptyListHasNoElementsAndIsSetAsAWhole) {
  JobConfig job;
  const absl::Status status = ApplyOverride({"tables[0].name", "x", "--set"}, &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'tables'"), HasSubstr("tables={name: ...}")));
}

TEST(OverrideTest, ElementsOfListsAreReachedByIndex) {
  JobConfig job = With("tables", "[{name: 'a'}, {name: 'b'}]");
  ASSERT_TRUE(ApplyOverride({"tables[1].num_shards", "9", "--set"}, &job).ok());
  EXPECT_EQ(job.tables(1).num_shards(), 9);
  const absl::Status status = ApplyOverride({"tables[2].num_shards", "9", "--set"}, &job);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("list of 2"), HasSubstr("tables[1]")));
  EXPECT_FALSE(ApplyOverride({"tables.num_shards", "9", "--set"}, &job).ok());
  EXPECT_FALSE(ApplyOverride({"tables[0]", "{}", "--set"}, &job).ok());
  EXPECT_FALSE(ApplyOverride({"tables[x].name", "c", "--set"}, &job).ok());
}

TEST(OverrideTest, WrongPathsSayWhatExistsThere) {
  EXPECT_THAT(Error("train.batchsize", "1"),
              AllOf(HasSubstr("--set train.batchsize=1"), HasSubstr("no field 'batchsize'"),
                    HasSubstr("did you mean 'batch_size'?"), HasSubstr("epochs")));
  EXPECT_THAT(Error("trian.epochs", "1"), HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(Error("batch_size", "3"),
              HasSubstr("did you mean 'train.batch_size' or 'eval.batch_size'?"));
  EXPECT_THAT(Error("model.dropout", "1"), HasSubstr("did you mean 'model.wide_deep.dropout'?"));
  EXPECT_THAT(Error("optimizers.epochs", "1"), HasSubstr("did you mean 'train.epochs'?"));
  EXPECT_THAT(Error("train.epochs.x", "1"), HasSubstr("'epochs'"));
  EXPECT_THAT(Error("", "1"), HasSubstr("field path"));
  EXPECT_THAT(Error("train..epochs", "1"), HasSubstr("field path"));
  EXPECT_THAT(Error("train[0].epochs", "1"), HasSubstr("list"));
}

TEST(OverrideTest, WrongValuesSayWhatIsPossible) {
  EXPECT_THAT(Error("train.batch_size", "many", "--batch_size"),
              AllOf(HasSubstr("--batch_size=many"), HasSubstr("whole number")));
  EXPECT_THAT(Error("train.epochs", "1e6"), HasSubstr("1000000"));
  EXPECT_THAT(Error("train.epochs", "1.5"), HasSubstr("whole number"));
  EXPECT_THAT(Error("train.epochs", "nan"), HasSubstr("whole number"));
  EXPECT_THAT(Error("train.batch_size", "-1"), HasSubstr("negative"));
  EXPECT_THAT(Error("train.batch_size", "4294967296"), HasSubstr("4294967295"));
  EXPECT_THAT(Error("strategy.a_sync_configs.k_steps", "-3000000000"), HasSubstr("-2147483648"));
  EXPECT_THAT(Error("strategy.a_sync", "maybe"), AllOf(HasSubstr("true"), HasSubstr("false")));
  EXPECT_THAT(Error("data.format", "CVS"), HasSubstr("CSV, TSV"));
  EXPECT_THAT(Error("model.wide_deep.dropout", "x"), HasSubstr("a number"));
  EXPECT_THAT(Error("train", "5"), AllOf(HasSubstr("braces"), HasSubstr("train.batch_size")));
  EXPECT_THAT(Error("train", "{epoch: 1}"), HasSubstr("did you mean 'epochs'?"));
  EXPECT_THAT(Error("train", "{} name: 'x' data {}"), HasSubstr("other fields"));
}

// k_steps after overriding a file with k_steps: 100.
int KStepsAfter(const std::vector<ConfigOverride>& overrides) {
  JobConfig job;
  job.mutable_strategy()->mutable_a_sync_configs()->set_k_steps(100);
  EXPECT_TRUE(ApplyOverrides(overrides, &job).ok());
  return job.strategy().a_sync_configs().k_steps();
}

TEST(OverrideTest, SyncFlagAloneResetsKStepsOfLowerLayers) {
  const ConfigOverride sync{"strategy.a_sync", "false", "--a_sync"};
  const ConfigOverride async{"strategy.a_sync", "true", "--a_sync"};
  const ConfigOverride sync_variable{"strategy.a_sync", "false", "SLUICE_A_SYNC"};
  const ConfigOverride k{"strategy.a_sync_configs.k_steps", "5", "--k_steps"};
  const ConfigOverride k_variable{"strategy.a_sync_configs.k_steps", "5", "SLUICE_K_STEPS"};
  EXPECT_EQ(KStepsAfter({}), 100);
  EXPECT_EQ(KStepsAfter({async}), 100);
  EXPECT_EQ(KStepsAfter({sync}), 0);
  EXPECT_EQ(KStepsAfter({sync_variable}), 0);
  EXPECT_EQ(KStepsAfter({k_variable, sync}), 0);
  // Said at once, so kept: validation then names the contradiction.
  EXPECT_EQ(KStepsAfter({sync, k}), 5);
  EXPECT_EQ(KStepsAfter({sync_variable, k_variable}), 5);
  EXPECT_EQ(KStepsAfter({sync_variable, k}), 5);
}

TEST(OverrideTest, LaterOverridesWin) {
  JobConfig job;
  ASSERT_TRUE(ApplyOverrides(
                  {{"train.epochs", "1", "SLUICE_EPOCHS"}, {"train.epochs", "2", "--epochs"}}, &job)
                  .ok());
  EXPECT_EQ(job.train().epochs(), 2);
}

TEST(OverrideTest, EnvironmentVariablesBecomeOverrides) {
  setenv("SLUICE_BATCH_SIZE", "77", 1);
  setenv("SLUICE_EPOCHS", "", 1);
  setenv("SLUICE_OUTPUT_DIR", "out", 1);
  const std::vector<ConfigOverride> overrides = OverridesFromEnvironment();
  unsetenv("SLUICE_BATCH_SIZE");
  unsetenv("SLUICE_EPOCHS");
  unsetenv("SLUICE_OUTPUT_DIR");
  ASSERT_EQ(overrides.size(), 2);
  EXPECT_EQ(overrides[0].path, "train.batch_size");
  EXPECT_EQ(overrides[0].value, "77");
  EXPECT_EQ(overrides[0].origin, "SLUICE_BATCH_SIZE");
  EXPECT_EQ(overrides[1].path, "output_dir");
}

TEST(OverrideTest, EveryShortOptionNamesAField) {
  for (const ShortOption& option : ShortOptions()) {
    JobConfig job;
    EXPECT_TRUE(ApplyOverride({option.path, "1", option.name}, &job).ok()) << option.path;
  }
}

}  // namespace
}  // namespace sluice

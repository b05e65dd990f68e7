#include "model/model_spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/optimizer/learning_rate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/wide_deep/spec_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ModelSpecTest, ShardsOfSparseTablesFollowThePservers) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (int i = 0; i < 3; ++i)
    tables.Add()->set_kind(i == 1 ? TableConfig::DENSE : TableConfig::SPARSE);
  tables[2].set_num_shards(3);
  ResolveShards(2, &tables);
  EXPECT_EQ(tables[0].num_shards(), 16u);
  EXPECT_EQ(tables[1].num_shards(), 0u);
  EXPECT_EQ(tables[2].num_shards(), 3u);
  tables[0].set_num_shards(0);
  ResolveShards(9, &tables);
  EXPECT_EQ(tables[0].num_shards(), 36u);
}

TEST(ModelSpecTest, ShardsOfTablesWhoseRowsGoAreFixed) {
  std::vector<TableConfig> tables(3);
  for (TableConfig& table : tables) table.set_kind(TableConfig::SPARSE);
  tables[0].set_name("kept");
  tables[1].set_name("expires");
  tables[1].mutable_expire()->set_after_steps(1);
  tables[2].set_name("new");
  tables[2].mutable_admit()->set_after(2);
  const std::vector<TableConfig> asked = tables;
  ASSERT_TRUE(FixShards(nullptr, &tables).ok());
  EXPECT_EQ(tables[0].num_shards(), 0u);
  EXPECT_EQ(tables[1].num_shards(), 256u);
  EXPECT_EQ(tables[2].num_shards(), 256u);
  // The job continues another one's table.
  Manifest checkpoint;
  *checkpoint.add_tables() = asked[1];
  checkpoint.mutable_tables(0)->set_num_shards(32);
  tables = asked;
  ASSERT_TRUE(FixShards(&checkpoint, &tables).ok());
  EXPECT_EQ(tables[1].num_shards(), 32u);
  EXPECT_EQ(tables[2].num_shards(), 256u);
  // Whatever the number of pservers.
  google::protobuf::RepeatedPtrField<TableConfig> resolved(asked.begin(), asked.end());
  ResolveShards(100, &resolved);
  EXPECT_EQ(resolved[0].num_shards(), 400u);
  EXPECT_EQ(resolved[1].num_shards(), 256u);
  for (const uint32_t wrong : {16u, 256u}) {
    tables = asked;
    tables[1].set_num_shards(wrong);
    EXPECT_FALSE(FixShards(&checkpoint, &tables).ok());
  }
}

TEST(ModelSpecTest, ALimitLeavesARowForEachShard) {
  // With these options of a table with two columns; `of_checkpoint`: the shards of its checkpoint.
  const auto refused = [](const std::string& options, uint32_t pservers, uint32_t of_checkpoint) {
    const auto model = Create(absl::StrCat(kModel, "tables { name: \"embedding\" ", options, " }"));
    absl::Status status = CheckShards(JobConfig(), model->tables(), pservers);
    std::vector<TableConfig> tables = model->tables();
    Manifest checkpoint;
    *checkpoint.add_tables() = Table(*model, "embedding");
    checkpoint.mutable_tables(0)->set_num_shards(of_checkpoint);
    status.Update(FixShards(of_checkpoint > 0 ? &checkpoint : nullptr, &tables));
    return std::string(status.message());
  };
  EXPECT_THAT(refused("max_rows: 10", 1, 0),
              AllOf(HasSubstr("\"embedding\""), HasSubstr("raise max_rows to 16 "),
                    HasSubstr("num_shards to 10 ")));
  EXPECT_EQ(refused("max_rows: 10 num_shards: 10", 1, 0), "");
  EXPECT_EQ(refused("max_rows: 16", 4, 0), "");
  EXPECT_THAT(refused("max_rows: 16", 5, 0), HasSubstr("raise max_rows to 20 "));
  EXPECT_THAT(refused("max_gib: 1e-6", 1, 0), HasSubstr("raise max_gib to "));
  // Tables whose rows go have 256, or those of the checkpoint.
  for (const char* rule : {"evict {}", "expire { after_steps: 9 }", "admit { after: 2 }"}) {
    const std::string options = absl::StrCat("max_rows: 40 ", rule);
    const std::string of_new = refused(options, 1, 0);
    EXPECT_THAT(of_new, AllOf(HasSubstr("raise max_rows to 256 "), Not(HasSubstr("num_shards"))));
    EXPECT_EQ(refused(options, 1, 40), "");
    EXPECT_THAT(refused(options, 1, 41), HasSubstr("raise max_rows to 41 "));
  }
}

TEST(ModelSpecTest, OnlyTrainingOnACpuRefusesComputeTypesThatNeedAGpu) {
  for (const auto type :
       {TrainConfig::F32, TrainConfig::BF16, TrainConfig::TF32, TrainConfig::FP16}) {
    JobConfig job;
    job.mutable_train()->set_compute_dtype(type);
    EXPECT_TRUE(CheckComputeType(job, /*on_cpu=*/false).ok());
    const absl::Status on_cpu = CheckComputeType(job, /*on_cpu=*/true);
    const bool needs_gpu = type == TrainConfig::TF32 || type == TrainConfig::FP16;
    EXPECT_EQ(on_cpu.code(),
              needs_gpu ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk);
    if (needs_gpu) {
      EXPECT_THAT(std::string(on_cpu.message()),
                  StartsWith("train.compute_dtype: " + TrainConfig::ComputeType_Name(type)));
    }
    job.set_evaluate_only(true);
    EXPECT_TRUE(CheckComputeType(job, /*on_cpu=*/true).ok());
  }
}

std::string OverrideError(const std::string& more) {
  return Error(std::string(kFeatures) + kModel + more);
}

TEST(TableOverridesTest, OverridesChangeWhatTheySet) {
  const auto model = Create(std::string(kModel) + R"(
    tables { name: "embedding" num_shards: 7 max_rows: 900 wire_type: BF16
             expire { after_steps: 70 } evict { score: LAST_USE } admit { after: 3 }
             columns { name: "embedding" initializer { constant: 0.5 } optimizer { learning_rate: 0.25 } } }
    tables { name: "deep/0/bias" shape: 16 kind: DENSE optimizer { sgd {} } }
    optimizers { all { adagrad {} } })");
  const TableConfig& sparse = Table(*model, "embedding");
  EXPECT_EQ(sparse.num_shards(), 7u);
  EXPECT_EQ(sparse.max_rows(), 900u);
  EXPECT_EQ(sparse.expire().after_steps(), 70u);
  EXPECT_EQ(sparse.evict().score(), EvictConfig::LAST_USE);
  EXPECT_EQ(sparse.admit().after(), 3u);
  EXPECT_EQ(Table(*model, "deep/0/bias").max_rows(), 0u);
  EXPECT_EQ(sparse.wire_type(), TableConfig::BF16);
  EXPECT_EQ(sparse.columns(1).initializer().constant(), 0.5f);
  EXPECT_EQ(sparse.columns(1).optimizer().rule_case(), OptimizerConfig::kAdagrad);
  EXPECT_EQ(sparse.columns(1).optimizer().learning_rate(), 0.25f);
  EXPECT_EQ(sparse.columns(0).optimizer().learning_rate(), 0.01f);
  EXPECT_EQ(Table(*model, "deep/0/bias").optimizer().rule_case(), OptimizerConfig::kSgd);
  EXPECT_EQ(Table(*model, "deep/0/bias").optimizer().learning_rate(), 0.01f);
}

TEST(TableOverridesTest, OverridesOfTheModelsShapeAreRefused) {
  EXPECT_THAT(OverrideError("tables { name: \"wide\" }"),
              HasSubstr("embedding, deep/0/weight, deep/0/bias"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" kind: DENSE }"), HasSubstr("kind DENSE"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" start { table: \"b\" } }"),
              HasSubstr("initial_checkpoint"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" shape: 17 }"),
              testing::AllOf(HasSubstr("shape [17]"), HasSubstr("[16]")));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" num_shards: 2 }"),
              HasSubstr("num_shards"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" max_rows: 2 }"), HasSubstr("max_rows"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" expire { after_steps: 2 } }"),
              HasSubstr("expire"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" max_gib: 2 }"), HasSubstr("max_gib"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" admit { after: 2 } }"),
              HasSubstr("remove admit"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" columns { name: \"x\" } }"),
              HasSubstr("no columns"));
  EXPECT_THAT(
      OverrideError("tables { name: \"embedding\" columns { name: \"embedding\" dim: 9 } }"),
      HasSubstr("dim 9"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" columns { name: \"deep\" } }"),
              HasSubstr("wide, embedding"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" optimizer { sgd {} } }"),
              HasSubstr("into columns"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" shape: 4 }"), HasSubstr("no shape"));
  EXPECT_THAT(OverrideError("tables { name: \"wide/bias\" } tables { name: \"wide/bias\" }"),
              HasSubstr("given twice"));
  EXPECT_THAT(
      OverrideError(
          "tables { name: \"embedding\" columns { name: \"wide\" } columns { name: \"wide\" } }"),
      HasSubstr("given twice"));
}

// Tables "embedding_8" and "embedding_2", each with the groups "wide" and "embedding".
constexpr char kTwoWidths[] =
    "features { name: 'z' categorical { column: 'job' } embedding_dim: 2 } "
    "model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } } "
    "optimizers { all { adagrad {} } } ";

TEST(TableOverridesTest, AColumnGroupIsOverriddenInEachSparseTable) {
  const auto model = Create(std::string(kTwoWidths) + R"(
    tables { name: "embedding_2" max_rows: 9 columns { name: "embedding" optimizer { learning_rate: 0.5 } } }
    tables { name: "embedding" initializer { constant: 3 } optimizer { learning_rate: 0.25 } }
    tables { name: "wide" optimizer { ftrl {} } })");
  for (const char* name : {"embedding_8", "embedding_2"}) {
    const TableConfig& table = Table(*model, name);
    EXPECT_EQ(table.columns(0).optimizer().rule_case(), OptimizerConfig::kFtrl);
    EXPECT_EQ(table.columns(0).initializer().constant(), 0);
    EXPECT_EQ(table.columns(1).optimizer().rule_case(), OptimizerConfig::kAdagrad);
    EXPECT_EQ(table.columns(1).initializer().constant(), 3);
  }
  // What is said of a single table wins.
  EXPECT_EQ(Table(*model, "embedding_8").columns(1).optimizer().learning_rate(), 0.25f);
  EXPECT_EQ(Table(*model, "embedding_2").columns(1).optimizer().learning_rate(), 0.5f);
  EXPECT_EQ(Table(*model, "embedding_2").max_rows(), 9u);
  EXPECT_EQ(Table(*model, "embedding_8").max_rows(), 0u);
}

TEST(TableOverridesTest, ATableWinsOverAColumnGroupOfItsName) {
  const auto model = Create(std::string(kTwoWidths) +
                            R"(features { name: "y" categorical { column: "job" } key: RAW }
                               features { name: "w" categorical { column: "job" } table: "wide" }
                               tables { name: "wide" max_rows: 7 })");
  EXPECT_EQ(Table(*model, "wide").max_rows(), 7u);
  const std::string named = "features { name: 'z' categorical { column: 'job' } table: 't' } ";
  const auto one = Create(named + kModel + "tables { name: 'embedding' max_rows: 7 }");
  EXPECT_EQ(Table(*one, "embedding").max_rows(), 7u);
  EXPECT_EQ(Table(*one, "t").max_rows(), 0u);
}

TEST(TableOverridesTest, FieldsOfATableAreRefusedForAColumnGroup) {
  for (const std::string field : {"max_rows: 9", "num_shards: 4", "wire_type: BF16",
                                  "columns { name: 'wide' }", "kind: SPARSE"}) {
    const std::string error =
        Error(std::string(kFeatures) + kTwoWidths + "tables { name: 'embedding' " + field + " }");
    EXPECT_THAT(error, testing::AllOf(HasSubstr("\"embedding\""), HasSubstr("column group"),
                                      HasSubstr(field.substr(0, field.find_first_of(" :"))),
                                      HasSubstr("embedding_8, embedding_2")));
  }
  EXPECT_THAT(Error(std::string(kFeatures) + kTwoWidths + "tables { name: 'deep' }"),
              HasSubstr("embedding_8, embedding_2"));
}

TEST(TableOverridesTest, WireTypeAndUpdateAtMustFitTheMode) {
  const std::string geo = "strategy { a_sync_configs { k_steps: 5 } }";
  EXPECT_THAT(OverrideError(geo + "tables { name: \"embedding\" wire_type: BF16 }"),
              HasSubstr("use F32"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" update_at: WORKER }"),
              HasSubstr("async"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" update_at: COLLECTIVE }"),
              HasSubstr("async"));
  EXPECT_THAT(OverrideError(geo + "tables { name: \"deep/0/bias\" update_at: COLLECTIVE }"),
              HasSubstr("geo"));
  EXPECT_THAT(OverrideError(geo + "tables { name: \"deep/0/bias\" update_at: PSERVER }"),
              HasSubstr("PSERVER contradicts Geo"));
  EXPECT_THAT(
      OverrideError(
          "strategy { a_sync: false } tables { name: \"embedding\" update_at: COLLECTIVE }"),
      testing::AllOf(HasSubstr("\"embedding\""), HasSubstr("sparse"), HasSubstr("remove")));
}

// The names of the tables that workers keep.
std::vector<std::string> OnWorkers(const std::string& more) {
  const auto model = Create(std::string(kModel) + more);
  std::vector<std::string> names;
  for (const TableConfig& table : model->tables())
    if (table.update_at() == TableConfig::COLLECTIVE) names.push_back(table.name());
  return names;
}

constexpr char kSync[] = "strategy { a_sync: false } ";
constexpr char kAllOnWorkers[] = "strategy { a_sync: false sync_configs { dense: COLLECTIVE } } ";

TEST(TableOverridesTest, WorkersKeepTheDenseTablesThatSaySo) {
  EXPECT_THAT(OnWorkers(kSync), testing::IsEmpty());
  EXPECT_THAT(OnWorkers(std::string(kSync) + R"(tables { name: "deep/0/bias" update_at: COLLECTIVE }
                                                tables { name: "deep/0/weight" update_at: PSERVER })"),
              testing::ElementsAre("deep/0/bias"));
}

TEST(TableOverridesTest, ATablesOwnUpdateAtWinsOverTheStrategy) {
  const std::vector<std::string> all = OnWorkers(kAllOnWorkers);
  EXPECT_THAT(all, testing::IsSupersetOf({"deep/0/weight", "deep/0/bias", "wide/bias"}));
  EXPECT_THAT(all, testing::Not(testing::Contains("embedding")));
  std::vector<std::string> others = all;
  others.erase(std::find(others.begin(), others.end(), "deep/0/weight"));
  EXPECT_EQ(OnWorkers(std::string(kAllOnWorkers) +
                      R"(tables { name: "deep/0/weight" update_at: PSERVER })"),
            others);
  EXPECT_EQ(OnWorkers(std::string(kAllOnWorkers) +
                      R"(tables { name: "deep/0/weight" update_at: COLLECTIVE }
                         tables { name: "embedding" update_at: PSERVER })"),
            all);
}

TEST(TableOverridesTest, EveryDenseTableOnPserversContradictsDenseCollective) {
  std::string tables;
  for (const std::string& name : OnWorkers(kAllOnWorkers))
    tables += "tables { name: \"" + name + "\" update_at: PSERVER } ";
  EXPECT_THAT(
      OverrideError(kAllOnWorkers + tables),
      testing::AllOf(HasSubstr("COLLECTIVE contradicts update_at: PSERVER"), HasSubstr("remove")));
  EXPECT_THAT(OnWorkers(kSync + tables), testing::IsEmpty());
}

TEST(TableOverridesTest, AJobThatOnlyEvaluatesPullsAllTablesOrNone) {
  const std::string evaluates = std::string(kSync) + "evaluate_only: true initial_model: \"/m\" ";
  EXPECT_THAT(OnWorkers(evaluates + R"(tables { name: "deep/0/bias" update_at: COLLECTIVE })"),
              testing::IsEmpty());
}

TEST(TableOverridesTest, LearningRatesScaleByWorkersWhenAsked) {
  const std::string optimizers = "worker_num: 4 optimizers { all { sgd {} learning_rate: 0.5 } ";
  EXPECT_EQ(Table(*Create(std::string(kModel) + optimizers + "}"), "wide/bias")
                .optimizer()
                .learning_rate(),
            0.5f);
  const auto scaled = Create(std::string(kModel) + optimizers + "lr_scale: WORKERS }");
  EXPECT_EQ(Table(*scaled, "wide/bias").optimizer().learning_rate(), 2.0f);
  EXPECT_EQ(Table(*scaled, "embedding").columns(0).optimizer().learning_rate(), 2.0f);
}

TEST(TableOverridesTest, EndsOfSchedulesScaleByWorkersWhenAsked) {
  for (const std::string kind :
       {"polynomial { steps: 10", "cosine { steps: 10", "cosine_restarts { first_steps: 10"}) {
    for (const bool scales : {false, true}) {
      const auto spec =
          Create(absl::StrCat(kModel, "worker_num: 4 optimizers { all { sgd {} learning_rate: 0.5 ",
                              "schedule { ", kind, " end: 0.125 } warmup_start: 0.5 ",
                              "warmup_steps: 2 } } ", scales ? "lr_scale: WORKERS }" : "}"));
      const float workers = scales ? 4 : 1;
      for (const OptimizerConfig& optimizer : {Table(*spec, "wide/bias").optimizer(),
                                               Table(*spec, "embedding").columns(0).optimizer()}) {
        const auto rate = [&](uint64_t step) {
          return LearningRateAt(optimizer.schedule(), optimizer.learning_rate(), step);
        };
        EXPECT_FLOAT_EQ(rate(0), 0.25f * workers) << kind;
        EXPECT_FLOAT_EQ(rate(2), 0.5f * workers) << kind;
        if (kind.find("restarts") == std::string::npos) {
          EXPECT_FLOAT_EQ(rate(12), 0.125f * workers) << kind;
        } else {
          EXPECT_NEAR(rate(11), 0.125 * workers, 0.02 * workers) << kind;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice

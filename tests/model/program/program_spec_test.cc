#include "model/program/program_spec.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_problem.h"
#include "common/config/job_config.h"
#include "common/config/own_data.h"
#include "common/optimizer/frozen_rule.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kJob[] = R"(
  name: "job"
  data { format: CSV train_files: "a.csv" label { column: "y" }
         csv { columns: ["y", "age", "user", "item", "bought", "day"] } }
  features { name: "age" numeric {} }
  features { name: "user" categorical {} }
  features { name: "item" embedding: "item" categorical {} }
  features { name: "bought" embedding: "item" categorical { multi_value_delimiter: "|" pooling: MEAN } }
  features { name: "day" categorical {} }
  optimizers { all { sgd {} learning_rate: 0.5 } }
  model { program {
    collections { name: "emb" dim: 8 features: ["item", "user", "bought"] optimizer { adagrad {} learning_rate: 0.25 } }
    collections { name: "lin" dim: 1 features: ["user", "item", "day"] initializer { constant: 0 } }
    parameters { name: "net.weight" shape: [4, 2] optimizer { adam {} learning_rate: 0.125 } }
    parameters { name: "net.bias" shape: 2 }
    parameters { name: "norm.running_mean" shape: 2 buffer: true }
  } }
)";

JobConfig Declared(const std::string& more = "") {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &job));
  JobConfig rest;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &rest)) << more;
  job.MergeFrom(rest);
  return job;
}

absl::StatusOr<JobConfig> Effective(const JobConfig& declared) {
  return EffectiveJobConfig(declared, "/base", BuiltInSpecs());
}

std::unique_ptr<ModelSpec> Create(const std::string& more = "") {
  const auto job = Effective(Declared(more));
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return nullptr;
  auto spec = ModelSpec::Create(*job, BuiltInSpecs());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : nullptr;
}

std::string Refusal(const JobConfig& declared) {
  const auto job = Effective(declared);
  const absl::Status status =
      job.ok() ? ModelSpec::Create(*job, BuiltInSpecs()).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}
std::string Refusal(const std::string& more) { return Refusal(Declared(more)); }

std::string Columns(const TableConfig& table) {
  return absl::StrCat(table.name(), ": ",
                      absl::StrJoin(table.columns(), " ", [](std::string* out, const auto& group) {
                        absl::StrAppend(out, group.name(), "/", group.dim());
                      }));
}

// Names and contents of tables are part of every saved model: none of these may ever change.
TEST(ProgramSpecTest, FeaturesWithTheSameCollectionsShareATable) {
  const auto spec = Create();
  ASSERT_NE(spec, nullptr);
  EXPECT_THAT(spec->sparse_tables(), ElementsAre(0, 1));
  EXPECT_THAT(spec->dense_tables(), ElementsAre(2, 3, 4));
  // "bought" shares the embedding of "item" and so has its lin as well, which nobody reads there.
  EXPECT_EQ(Columns(spec->tables()[0]), "embedding_9: emb/8 lin/1");
  EXPECT_EQ(Columns(spec->tables()[1]), "embedding_1: lin/1");
}

TEST(ProgramSpecTest, ShapeSaysWhereCollectionsAre) {
  const auto spec = Create();
  ASSERT_NE(spec, nullptr);
  const ProgramShape& shape = static_cast<const ProgramSpec&>(*spec).shape();
  ASSERT_EQ(shape.numbers.size(), 1u);
  EXPECT_EQ(shape.numbers[0].feature, "age");
  EXPECT_EQ(shape.num_numeric(), 1u);
  ASSERT_EQ(shape.slots.size(), 4u);
  EXPECT_EQ(shape.slots[1].feature, "item");
  EXPECT_TRUE(shape.slots[2].mean);
  // In the order of the declaration, not in that of the features.
  EXPECT_THAT(shape.collections[0].slots, ElementsAre(1, 0, 2));
  EXPECT_THAT(shape.collections[1].slots, ElementsAre(0, 1, 3));
  ASSERT_EQ(shape.tables.size(), 2u);
  EXPECT_EQ(shape.tables[0].dim, 9u);
  EXPECT_EQ(shape.tables[0].columns[1].begin, 8u);
  EXPECT_EQ(shape.parameters[0].elements, 8u);
}

TEST(ProgramSpecTest, EachTableHasTheRuleThatTheProgramOrTheJobGives) {
  const auto spec = Create("optimizers { lr_scale: WORKERS } worker_num: 2");
  ASSERT_NE(spec, nullptr);
  const auto& tables = spec->tables();
  EXPECT_TRUE(tables[0].columns(0).optimizer().has_adagrad());
  EXPECT_EQ(tables[0].columns(0).optimizer().learning_rate(), 0.5f);
  EXPECT_EQ(tables[0].columns(1).optimizer().learning_rate(), 1.0f);  // optimizers.all
  EXPECT_TRUE(tables[2].optimizer().has_adam());
  EXPECT_EQ(tables[3].optimizer().learning_rate(), 1.0f);
  // The rate of a buffer is no rate of learning.
  EXPECT_TRUE(tables[4].optimizer().has_sgd());
  EXPECT_EQ(tables[4].optimizer().learning_rate(), 1.0f);
  EXPECT_EQ(tables[0].columns(0).initializer().uniform().max(), 0.05f);
  EXPECT_EQ(tables[0].columns(1).initializer().constant(), 0.0f);
}

TEST(ProgramSpecTest, TablesOfOneWidthAreNamedAfterTheirCollections) {
  JobConfig job = Declared();
  ProgramConfig* const program = job.mutable_model()->mutable_program();
  program->mutable_collections(0)->clear_features();
  program->mutable_collections(0)->add_features("user");
  program->mutable_collections(1)->clear_features();
  program->mutable_collections(1)->add_features("day");
  program->mutable_collections(1)->set_dim(8);
  job.mutable_features()->DeleteSubrange(2, 2);
  const auto effective = Effective(job);
  ASSERT_TRUE(effective.ok()) << effective.status();
  const auto spec = ModelSpec::Create(*effective, BuiltInSpecs());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Columns((*spec)->tables()[0]), "embedding_8_emb: emb/8");
  EXPECT_EQ(Columns((*spec)->tables()[1]), "embedding_8_lin: lin/8");
}

TEST(ProgramSpecTest, ValuesOfTheProgramAreTheInitialModelUnlessTheJobHasOne) {
  const std::string values = R"(model { program { initial_values: "/values" } } )";
  EXPECT_EQ(Effective(Declared(values))->initial_model(), "/values");
  EXPECT_EQ(Effective(Declared(values + "initial_model: '/mine'"))->initial_model(), "/mine");
  EXPECT_EQ(Effective(Declared(values + "initial_checkpoint: '/old'"))->initial_model(), "");
}

TEST(ProgramSpecTest, DefaultsStay) {
  const auto once = Effective(Declared());
  ASSERT_TRUE(once.ok()) << once.status();
  const auto twice = Effective(*once);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->SerializeAsString(), once->SerializeAsString());
}

TEST(ProgramSpecTest, OneNamesWhatIsWrong) {
  const auto with = [](auto change) {
    JobConfig job = Declared();
    change(job.mutable_model()->mutable_program());
    return Refusal(job);
  };
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_collections(0)->add_features("age"); }),
              AllOf(HasSubstr("collections[0].features"), HasSubstr("'age'")));
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_collections(0)->add_features("nobody"); }),
              HasSubstr("'nobody'"));
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_collections(1)->set_name("emb"); }),
              HasSubstr("collections[1].name"));
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_collections(1)->set_dim(0); }),
              HasSubstr("collections[1].dim"));
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_parameters(1)->set_shape(0, 0); }),
              HasSubstr("parameters[1].shape"));
  EXPECT_THAT(with([](ProgramConfig* p) {
                p->mutable_parameters(0)->set_shape(0, uint64_t{1} << 40);
                p->mutable_parameters(0)->set_shape(1, uint64_t{1} << 40);
              }),
              HasSubstr("parameters[0].shape"));
  EXPECT_THAT(with([](ProgramConfig* p) { p->mutable_parameters(1)->set_name("embedding_9"); }),
              HasSubstr("'embedding_9'"));
  EXPECT_THAT(
      with([](ProgramConfig* p) { p->mutable_parameters(2)->mutable_optimizer()->mutable_sgd(); }),
      HasSubstr("parameters[2].optimizer"));
  EXPECT_THAT(with([](ProgramConfig* p) {
                p->clear_collections();
                p->clear_parameters();
              }),
              HasSubstr("nothing to train"));
  // A feature that nobody looks up.
  EXPECT_THAT(
      with([](ProgramConfig* p) { p->mutable_collections(1)->mutable_features()->RemoveLast(); }),
      AllOf(HasSubstr("\"day\""), HasSubstr("no collection")));
}

TEST(ProgramSpecTest, WhatProgramsCannotDoYetIsRefused) {
  EXPECT_THAT(Refusal("strategy { a_sync_configs { k_steps: 4 geo_merge: SUM } }"),
              AllOf(HasSubstr("geo_merge"), HasSubstr("buffers")));
  EXPECT_THAT(
      Refusal("strategy { a_sync: true a_sync_configs { gradients_to_wait: 2 } } worker_num: 2"),
      AllOf(HasSubstr("gradients_to_wait"), HasSubstr("buffers")));
  EXPECT_THAT(Refusal("strategy { a_sync: false sync_configs { gradient_merge_steps: 2 } }"),
              HasSubstr("gradient_merge_steps"));
  EXPECT_THAT(Refusal("optimizers { clip_global_norm: 1 }"), HasSubstr("buffers"));
  EXPECT_THAT(Refusal("optimizers { wide { sgd {} } }"), HasSubstr("no wide part"));
  EXPECT_THAT(Refusal("tables { name: 'norm.running_mean' optimizer { sgd {} } }"),
              AllOf(HasSubstr("tables[0]"), HasSubstr("buffer")));
}

TEST(ProgramSpecTest, AParameterWithRate0IsFrozenWhateverTheJobSays) {
  const auto spec = Create(R"(
    model { program { parameters { name: 'frozen' shape: 2 optimizer { sgd {} learning_rate: 0 } } } }
    optimizers { all { adam {} schedule { exponential { steps: 10 rate: 0.5 } } } lr_scale: WORKERS }
    worker_num: 2)");
  ASSERT_NE(spec, nullptr);
  const std::vector<ProgramShape::Parameter>& parameters =
      static_cast<const ProgramSpec&>(*spec).shape().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool frozen = parameters[i].name == "frozen";
    EXPECT_EQ(parameters[i].frozen, frozen) << parameters[i].name;
    EXPECT_EQ(IsFrozen(spec->tables()[spec->dense_tables()[i]].optimizer()), frozen);
  }
}

TEST(ProgramSpecTest, WorkersDoNotExchangeWhatIsFrozen) {
  const char* const frozen = R"(
    model { program { parameters { name: 'frozen' shape: 2 optimizer { sgd {} learning_rate: 0 } } } }
    worker_num: 2 )";
  const char* const collective = "strategy { a_sync: false sync_configs { dense: COLLECTIVE } } ";
  const auto at = [](const ModelSpec& spec, const std::string& name) {
    for (const TableConfig& table : spec.tables())
      if (table.name() == name) return table.update_at();
    ADD_FAILURE() << "no table " << name;
    return TableConfig::PSERVER;
  };
  const auto spec = Create(absl::StrCat(frozen, collective));
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(at(*spec, "frozen"), TableConfig::PSERVER);
  EXPECT_EQ(at(*spec, "norm.running_mean"), TableConfig::COLLECTIVE);
  // `tables` has the last word.
  const auto told =
      Create(absl::StrCat(frozen, collective, "tables { name: 'frozen' update_at: COLLECTIVE }"));
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(at(*told, "frozen"), TableConfig::COLLECTIVE);
}

// Each of these modes has a rule of its own for all tables; a buffer's update stays its definition.
TEST(ProgramSpecTest, GeoAndCollectiveKeepTheRuleOfBuffers) {
  for (const char* strategy : {"strategy { a_sync_configs { k_steps: 4 } }",
                               "strategy { a_sync: false sync_configs { dense: COLLECTIVE } }"}) {
    const auto spec =
        Create(absl::StrCat(strategy, " optimizers { lr_scale: WORKERS } worker_num: 3"));
    ASSERT_NE(spec, nullptr) << strategy;
    const TableConfig& buffer = spec->tables()[spec->dense_tables()[2]];
    EXPECT_EQ(buffer.name(), "norm.running_mean");
    EXPECT_TRUE(buffer.optimizer().has_sgd());
    EXPECT_EQ(buffer.optimizer().learning_rate(), 1);
    const TableConfig& weight = spec->tables()[spec->dense_tables()[0]];
    EXPECT_EQ(buffer.update_at(), weight.update_at()) << strategy;
    EXPECT_NE(buffer.update_at(), TableConfig::PSERVER) << strategy;
  }
}

TEST(ProgramSpecTest, AJobWithoutFilesTakesItsDataFromTheProgram) {
  JobConfig job = Declared();
  job.clear_data();
  job.mutable_features(3)->mutable_categorical()->clear_multi_value_delimiter();
  auto effective = Effective(job);
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_EQ(effective->data().assignment(), DataConfig::PER_RANK_FILES);
  EXPECT_TRUE(ProgramGivesData(*effective));
  EXPECT_FALSE(HasEvaluationData(*effective));
  // `bought` has pooling MEAN, which needs a delimiter only in files.
  const absl::Status made = ModelSpec::Create(*effective, BuiltInSpecs()).status();
  EXPECT_TRUE(made.ok()) << made;
  job.mutable_eval();
  effective = Effective(job);
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_TRUE(HasEvaluationData(*effective));
  EXPECT_EQ(effective->eval().every_epochs(), 1u);
  // A table has columns, a label among them, and texts that are missing values.
  job.mutable_data()->mutable_label()->set_column("y");
  job.mutable_data()->mutable_csv()->add_missing("-");
  job.mutable_features(1)->mutable_categorical()->add_vocabulary("a");
  EXPECT_TRUE(Effective(job).ok()) << Effective(job).status();
  // Nobody reads lines.
  job.mutable_data()->mutable_csv()->set_header(true);
  EXPECT_THAT(Refusal(job), HasSubstr("data.csv"));
  job.clear_data();
  job.mutable_data()->set_drop_last(true);
  EXPECT_THAT(Refusal(job), HasSubstr("data.drop_last"));
}

TEST(ProgramSpecTest, ShippedProgramsHaveNoNetworkForIt) {
  const auto job = Effective(Declared());
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status = Model::Create(*job, BuiltInModels()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--program"));
}

TEST(ProgramDigestTest, CoversTheDeclarationAndNoValues) {
  const std::string digest = ProgramDigest(Declared());
  EXPECT_EQ(digest.size(), 64u);
  JobConfig same = Declared("train { epochs: 7 } worker_num: 3");
  same.mutable_model()->mutable_program()->set_digest(digest);
  same.mutable_model()->mutable_program()->set_initial_values("/values");
  EXPECT_EQ(ProgramDigest(same), digest);
  JobConfig other = Declared();
  other.mutable_model()->mutable_program()->mutable_parameters(1)->set_shape(0, 3);
  EXPECT_NE(ProgramDigest(other), digest);
  other = Declared();
  other.mutable_features(1)->mutable_categorical()->set_hash_buckets(100);
  EXPECT_NE(ProgramDigest(other), digest);
}

TEST(ProgramDigestTest, TheFirstDifferenceIsNamed) {
  const auto job = Effective(Declared());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(FirstDifference(Declared(), *job), IsEmpty());
  JobConfig edited = Declared();
  edited.mutable_model()->mutable_program()->mutable_parameters(1)->set_shape(0, 3);
  edited.mutable_model()->mutable_program()->mutable_parameters(2)->set_name("other");
  EXPECT_THAT(FirstDifference(edited, *job),
              AllOf(HasSubstr("parameters[1].shape[0]"), Not(HasSubstr("other"))));
}

}  // namespace
}  // namespace sluice

// A model outside of the production list, from its configuration to a trained network.
#include "tests/model/linear_model/linear_model.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/config_problem.h"
#include "common/config/job_config.h"
#include "common/optimizer/update_rule.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model.h"
#include "model/model_match.h"
#include "model/net/dense_net.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The one line that adds a model to a list.
const ModelList& Models() {
  static const auto* const models = new ModelList({
      LinearModel(),
  });
  return *models;
}

JobConfig Job(const std::string& options, const std::string& more = "") {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(data { format: CSV train_files: "train.csv" label { column: "y" }
                csv { columns: ["y", "a", "b"] } }
         features { name: "a" numeric {} }
         features { name: "b" numeric {} }
         optimizers { all { sgd {} learning_rate: 0.5 } })",
      &job));
  JobConfig rest;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &rest)) << more;
  job.MergeFrom(rest);
  job.mutable_model()->mutable_custom()->set_name("linear");
  job.mutable_model()->mutable_custom()->set_options(options);
  return job;
}

absl::StatusOr<JobConfig> Effective(const std::string& options, const std::string& more = "") {
  return EffectiveJobConfig(Job(options, more), "/base", Models());
}

std::string Refusal(const std::string& options, const std::string& more = "") {
  const absl::Status status = Effective(options, more).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::unique_ptr<Model> CreateModel(const std::string& options, const std::string& more = "") {
  const auto job = Effective(options, more);
  EXPECT_TRUE(job.ok()) << job.status();
  auto model = Model::Create(*job, Models());
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// n examples with label 1 where 2 a - b + 0.5 > 0.
Batch Examples(const Model& model, size_t n) {
  Batch batch;
  batch.Reset(model.schema()->numerics().size(), model.schema()->slots().size());
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> number(-1, 1);
  for (size_t i = 0; i < n; ++i) {
    const double a = number(random), b = number(random);
    const std::string a_text = absl::StrCat(a), b_text = absl::StrCat(b);
    std::vector<std::string_view> line;
    for (const std::string& column : model.schema()->columns()) {
      line.push_back(column == "y"   ? (2 * a - b + 0.5 > 0 ? "1" : "0")
                     : column == "a" ? std::string_view(a_text)
                     : column == "b" ? std::string_view(b_text)
                                     : std::string_view());
    }
    const bool missing[8] = {};
    const absl::Status status =
        model.schema()->AppendExample(line.data(), missing, /*need_label=*/true, &batch);
    EXPECT_TRUE(status.ok()) << status;
  }
  return batch;
}

// The network of a model, with its dense tables and their optimizers.
class Training {
 public:
  explicit Training(const Model& model, size_t pass_examples = 0) {
    NetOptions options = CpuNet(1, 16);
    options.pass_examples = pass_examples;
    auto net = model.CreateNet(options);
    EXPECT_TRUE(net.ok()) << net.status();
    net_ = *std::move(net);
    for (const int t : model.dense_tables()) {
      const TableConfig& table = model.tables()[t];
      values_.emplace_back(table.shape(0), table.initializer().constant());
      gradients_.emplace_back(table.shape(0), std::nanf(""));
      auto rule = UpdateRule::Create(table.optimizer());
      EXPECT_TRUE(rule.ok()) << rule.status();
      rules_.push_back(*std::move(rule));
      rates_.push_back(table.optimizer().learning_rate());
    }
  }

  std::vector<std::vector<float>>& values() { return values_; }
  const std::vector<std::vector<float>>& gradients() const { return gradients_; }

  // Mean loss of the batch; then the gradients are those of the step.
  double Step(const Batch& batch) {
    NetInput input;
    input.batch = &batch;
    NetGradients gradients;
    for (size_t t = 0; t < values_.size(); ++t) {
      input.dense.push_back(values_[t].data());
      gradients.dense.push_back(gradients_[t].data());
    }
    const absl::Status status = net_->TrainStep(input, /*seed=*/1, /*epoch=*/0, &gradients);
    EXPECT_TRUE(status.ok()) << status;
    return gradients.loss_sum / gradients.weight_sum;
  }

  // The rules have no state.
  void Update(uint64_t count) {
    for (size_t t = 0; t < values_.size(); ++t) {
      const size_t n = values_[t].size();
      rules_[t]->Apply(values_[t].data(), nullptr,
                       reinterpret_cast<const UnalignedFloat*>(gradients_[t].data()), n, n,
                       rates_[t], count);
    }
  }

 private:
  std::unique_ptr<DenseNet> net_;
  std::vector<std::vector<float>> values_, gradients_;
  std::vector<std::unique_ptr<const UpdateRule>> rules_;
  std::vector<float> rates_;
};

TEST(LinearModelTest, ItsRulesFillInDefaultsThatStay) {
  const auto once = Effective("");
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_THAT(once->model().custom().options(), HasSubstr("bias: true"));
  EXPECT_TRUE(once->optimizers().has_dense());
  EXPECT_FALSE(once->optimizers().has_embedding() || once->optimizers().has_wide());
  const auto twice = EffectiveJobConfig(*once, "/base", Models());
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->SerializeAsString(), once->SerializeAsString());
}

TEST(LinearModelTest, ItsRulesRefuseImpossibleAndUnusedOptions) {
  EXPECT_THAT(Refusal("biass: true"), HasSubstr("model.custom.options: "));
  EXPECT_THAT(Refusal("initial_bias: nan"), HasSubstr("model.custom.options: initial_bias"));
  EXPECT_THAT(Refusal("bias: false initial_bias: 1"),
              HasSubstr("model.custom.options: initial_bias 1"));
  EXPECT_THAT(Refusal("", "optimizers { embedding { sgd {} } }"),
              HasSubstr("optimizers.embedding: "));
  EXPECT_THAT(Refusal("", "strategy { a_sync_configs { hot_row_cache {} } }"),
              HasSubstr("hot_row_cache: "));
}

TEST(LinearModelTest, AFeatureThatItDoesNotUseIsRefused) {
  const auto job = Effective("", R"(features { name: "c" categorical { column: "b" } })");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(FieldOf(ModelSpec::Create(*job, Models()).status()), "features[2]");
}

TEST(LinearModelTest, TablesAreAWeightANumberAndTheBias) {
  const auto model = CreateModel("initial_bias: 0.25");
  ASSERT_EQ(model->tables().size(), 2u);
  EXPECT_EQ(model->tables()[0].name(), "weight");
  EXPECT_THAT(model->tables()[0].shape(), ElementsAre(2));
  EXPECT_EQ(model->tables()[1].name(), "bias");
  EXPECT_EQ(model->tables()[1].initializer().constant(), 0.25f);
  EXPECT_EQ(model->tables()[1].optimizer().learning_rate(), 0.5f);
  EXPECT_THAT(model->sparse_tables(), testing::IsEmpty());
  EXPECT_THAT(model->dense_tables(), ElementsAre(0, 1));
  EXPECT_EQ(CreateModel("bias: false")->tables().size(), 1u);
}

TEST(LinearModelTest, TablesTakeFromTheJobWhatEveryModelsTablesDo) {
  const auto model = CreateModel("", R"(
      tables { name: "bias" optimizer { sgd {} learning_rate: 0.125 } }
      optimizers { lr_scale: WORKERS } worker_num: 2
      strategy { a_sync_configs { k_steps: 4 } })");
  EXPECT_EQ(model->tables()[0].optimizer().learning_rate(), 1.0f);
  EXPECT_EQ(model->tables()[1].optimizer().learning_rate(), 0.25f);
  EXPECT_EQ(model->tables()[1].update_at(), TableConfig::WORKER);
}

TEST(LinearModelTest, ASavedModelOfNumbersInAnotherOrderIsRefused) {
  const auto job = Effective("");
  ASSERT_TRUE(job.ok()) << job.status();
  JobConfig swapped = *job;
  swapped.mutable_features()->SwapElements(0, 1);
  const auto found = CompareWithModel(*job, swapped, Models());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->refused, ElementsAre(AllOf(HasSubstr("\"a\""), HasSubstr("\"b\""))));
  const auto same = CompareWithModel(*job, *job, Models());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->refused.empty());
}

TEST(LinearModelTest, GradientsAreTheDifferencesOfTheLoss) {
  const auto model = CreateModel("");
  Batch batch = Examples(*model, 50);
  for (size_t i = 0; i < batch.n; ++i) batch.weight[i] = 0.5f + i % 3;
  Training training(*model);
  training.values() = {{0.3f, -0.6f}, {0.1f}};
  training.Step(batch);
  const std::vector<std::vector<float>> gradients = training.gradients();
  constexpr float kStep = 1.0f / 128;
  for (size_t t = 0; t < gradients.size(); ++t) {
    for (size_t j = 0; j < gradients[t].size(); ++j) {
      float& value = training.values()[t][j];
      const float middle = value;
      value = middle + kStep;
      const double above = training.Step(batch);
      value = middle - kStep;
      const double below = training.Step(batch);
      value = middle;
      const double reference = (above - below) / (2 * kStep);
      EXPECT_TRUE(std::isfinite(gradients[t][j]) && std::abs(gradients[t][j] - reference) <= 1e-4)
          << t << " " << j << ": " << gradients[t][j] << ", reference " << reference;
    }
  }
}

TEST(LinearModelTest, AStepInPassesHasTheGradientsOfTheWhole) {
  const auto model = CreateModel("");
  Batch batch = Examples(*model, 50);
  for (size_t i = 0; i < batch.n; ++i) batch.weight[i] = 0.5f * static_cast<float>(i % 4);
  Training whole(*model), passes(*model, 16);
  EXPECT_NEAR(passes.Step(batch), whole.Step(batch), 1e-12);
  for (size_t t = 0; t < 2; ++t) {
    for (size_t i = 0; i < whole.gradients()[t].size(); ++i)
      EXPECT_NEAR(passes.gradients()[t][i], whole.gradients()[t][i], 1e-7);
  }
}

TEST(LinearModelTest, TrainingFindsTheLine) {
  const auto model = CreateModel("");
  const Batch batch = Examples(*model, 500);
  Training training(*model);
  const double first = training.Step(batch);
  EXPECT_NEAR(first, std::log(2.0), 1e-6);  // all values are 0
  double before = first;
  for (uint64_t step = 1; step <= 2000; ++step) {
    training.Update(step);
    const double loss = training.Step(batch);
    if (step % 100 != 0) continue;
    ASSERT_LT(loss, before) << "step " << step;
    before = loss;
  }
  EXPECT_LT(before, 0.15);
  const std::vector<float>& weight = training.values()[0];
  EXPECT_NEAR(weight[0] / weight[1], -2, 0.2);
  EXPECT_GT(training.values()[1][0], 0);
}

TEST(LinearModelTest, NoExamplesGiveZeroGradients) {
  const auto model = CreateModel("");
  Training training(*model);
  training.Step(Examples(*model, 0));
  EXPECT_THAT(training.gradients(), ElementsAre(ElementsAre(0, 0), ElementsAre(0)));
}

TEST(LinearModelTest, ADeviceThatItCannotUseIsRefused) {
  NetOptions options = CpuNet(1, 16);
  options.device.kind = ComputeDevice::kCuda;
  EXPECT_EQ(CreateModel("")->CreateNet(options).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(LinearModelTest, ProgramsThatDoNotHaveItRefuseItsName) {
  const absl::Status status = EffectiveJobConfig(Job(""), "/base", BuiltInSpecs()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.custom.name: "));
}

}  // namespace
}  // namespace sluice

// The gradients of the counting model, and the refusals of jobs that it cannot count.
#include "tests/model/counting_model/counting_model.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_problem.h"
#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/model.h"
#include "model/net/dense_net.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

const ModelList& Models() {
  static const auto* const models = new ModelList({CountingModel()});
  return *models;
}

absl::StatusOr<JobConfig> Effective(const std::string& more) {
  JobConfig job, rest;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(data { format: CSV train_files: "train.csv" label { column: "y" }
                csv { columns: ["y", "x", "id", "group"] } }
         features { name: "x" numeric {} }
         model { custom { name: "counting" } }
         optimizers { all { sgd {} learning_rate: 1 } })",
      &job));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &rest)) << more;
  job.MergeFrom(rest);
  return EffectiveJobConfig(job, "/base", Models());
}

constexpr char kKeys[] = R"(features { name: "id" categorical {} }
                            features { name: "group" categorical {} })";

std::unique_ptr<Model> CreateModel(const std::string& more = "") {
  const auto job = Effective(kKeys + more);
  EXPECT_TRUE(job.ok()) << job.status();
  auto model = Model::Create(*job, Models());
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Three examples with x 1, 2, 3; ids a, b, c; groups g, g, h.
Batch Examples(const Model& model) {
  Batch batch;
  batch.Reset(1, 2);
  const char* const lines[3][4] = {
      {"1", "1", "a", "g"}, {"0", "2", "b", "g"}, {"1", "3", "c", "h"}};
  for (const auto& line : lines) {
    std::vector<std::string_view> cells;
    for (const std::string& column : model.schema()->columns())
      cells.push_back(column.empty()   ? ""
                      : column == "y"  ? line[0]
                      : column == "x"  ? line[1]
                      : column == "id" ? line[2]
                                       : line[3]);
    const bool missing[8] = {};
    const absl::Status status =
        model.schema()->AppendExample(cells.data(), missing, /*need_label=*/true, &batch);
    EXPECT_TRUE(status.ok()) << status;
  }
  return batch;
}

// Runs one step on rows a, g, b, c, h.
struct Step {
  Step(const Model& model, const Batch& batch) {
    auto net = model.CreateNet(CpuNet(1, 16));
    EXPECT_TRUE(net.ok()) << net.status();
    const uint32_t row_index[] = {0, 1, 2, 1, 3, 4};
    const float values[2] = {};
    NetInput input;
    input.batch = &batch;
    input.row_index = row_index;
    input.rows.resize(1);
    input.rows[0].values = rows.data();
    input.rows[0].n = batch.n == 0 ? 0 : rows.size();
    input.dense.assign(4, values);
    gradients.rows = {rows.data()};
    for (auto& total : totals) gradients.dense.push_back(total.data());
    const absl::Status status = (*net)->TrainStep(input, 1, 0, &gradients);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::vector<float> rows = std::vector<float>(5, 7);
  std::vector<std::vector<float>> totals{4, {7, 7}};
  NetGradients gradients;
};

TEST(CountingModelTest, GradientsCountKeysAndExamples) {
  const auto model = CreateModel();
  const Step step(*model, Examples(*model));
  EXPECT_THAT(step.rows, ElementsAre(-1, -2, -1, -1, -1));
  for (const auto& total : step.totals) EXPECT_THAT(total, ElementsAre(-3, -6));
  EXPECT_EQ(step.gradients.weight_sum, 1);
}

TEST(CountingModelTest, AStepWithoutExamplesCountsNothingAndWeighsTheSame) {
  const auto model = CreateModel();
  Batch none;
  none.Reset(1, 2);
  const Step step(*model, none);
  for (const auto& total : step.totals) EXPECT_THAT(total, ElementsAre(0, 0));
  EXPECT_EQ(step.gradients.weight_sum, 1);
}

TEST(CountingModelTest, ValuesBeginAtZeroAndTheRateMakesTheMeanOverWorkersTheirSum) {
  const auto model = CreateModel("optimizers { lr_scale: WORKERS } worker_num: 4");
  ASSERT_EQ(model->tables().size(), 5u);
  const ColumnGroup& count = model->tables()[0].columns(0);
  EXPECT_EQ(count.initializer().constant(), 0);
  EXPECT_EQ(count.optimizer().learning_rate(), 4);
  for (const int table : model->dense_tables()) {
    EXPECT_EQ(model->tables()[table].initializer().constant(), 0);
    EXPECT_EQ(model->tables()[table].optimizer().learning_rate(), 4);
  }
}

TEST(CountingModelTest, JobsThatItCannotCountAreRefused) {
  const auto without_keys = Effective("");
  ASSERT_TRUE(without_keys.ok()) << without_keys.status();
  EXPECT_EQ(FieldOf(ModelSpec::Create(*without_keys, Models()).status()), "features");
  EXPECT_EQ(
      Effective(std::string(kKeys) + R"(model { custom { options: "a: 1" } })").status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Effective(std::string(kKeys) + "optimizers { embedding { sgd {} } }").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice

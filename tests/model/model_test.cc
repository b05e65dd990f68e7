#include "model/model.h"

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/net/dense_net.h"

namespace sluice {
namespace {

JobConfig Job() {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(data { format: CSV csv { columns: ["y", "x"] } label { column: "y" } }
         features { name: "x" numeric {} } model { wide_deep { hidden_units: 4 } })",
      &job));
  return job;
}

TEST(ModelTest, CombinesTheSpecWithNetworks) {
  const auto spec = ModelSpec::Create(Job(), BuiltInSpecs());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto model = Model::Create(Job(), BuiltInModels());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->schema()->columns(), (*spec)->schema()->columns());
  EXPECT_EQ((*model)->tables().size(), (*spec)->tables().size());
  EXPECT_EQ((*model)->dense_tables(), (*spec)->dense_tables());
  EXPECT_EQ((*model)->sparse_table(), (*spec)->sparse_table());
  EXPECT_TRUE((*model)->CreateNet(CpuNet(1, 4)).ok());
}

TEST(ModelTest, AListWithoutNetworksIsRefused) {
  EXPECT_EQ(Model::Create(Job(), BuiltInSpecs()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ModelTest, AJobWithoutAModelIsRefused) {
  JobConfig job = Job();
  job.clear_model();
  EXPECT_EQ(Model::Create(job, BuiltInModels()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ModelSpec::Create(job, BuiltInSpecs()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice

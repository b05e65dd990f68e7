#include "model/model.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/net/dense_net.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

JobConfig ModelJob() {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(data { format: CSV csv { columns: ["y", "x"] } label { column: "y" } }
         features { name: "x" numeric {} } model { wide_deep { hidden_units: 4 } })",
      &job));
  return job;
}

TEST(ModelTest, CombinesTheSpecWithNetworks) {
  const auto spec = ModelSpec::Create(ModelJob(), BuiltInSpecs());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto model = Model::Create(ModelJob(), BuiltInModels());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->schema()->columns(), (*spec)->schema()->columns());
  EXPECT_EQ((*model)->tables().size(), (*spec)->tables().size());
  EXPECT_EQ((*model)->dense_tables(), (*spec)->dense_tables());
  EXPECT_EQ((*model)->sparse_tables(), (*spec)->sparse_tables());
  EXPECT_TRUE((*model)->CreateNet(CpuNet(1, 4)).ok());
}

TEST(ModelTest, AListWithoutNetworksIsRefused) {
  EXPECT_EQ(Model::Create(ModelJob(), BuiltInSpecs()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ModelTest, AJobWithoutAModelIsRefused) {
  JobConfig job = ModelJob();
  job.clear_model();
  EXPECT_EQ(Model::Create(job, BuiltInModels()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ModelSpec::Create(job, BuiltInSpecs()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

ComputeDevice Gpu() {
  ComputeDevice device;
  device.kind = ComputeDevice::kCuda;
  device.ordinal = 2;
  return device;
}

JobConfig ModelJob(TrainConfig::ComputeType type) {
  JobConfig job;
  job.mutable_train()->set_compute_dtype(type);
  job.mutable_train()->set_batch_size(512);
  job.mutable_eval()->set_batch_size(2048);
  return job;
}

TEST(JobNetOptionsTest, AGpuSupportsEveryPrecision) {
  const std::pair<TrainConfig::ComputeType, MatmulPrecision> all[] = {
      {TrainConfig::F32, MatmulPrecision::kF32},
      {TrainConfig::BF16, MatmulPrecision::kBf16},
      {TrainConfig::TF32, MatmulPrecision::kTf32},
      {TrainConfig::FP16, MatmulPrecision::kFp16}};
  ASSERT_EQ(std::size(all), TrainConfig::ComputeType_ARRAYSIZE);
  for (const auto& [type, precision] : all) {
    const auto options = NetOptionsOf(ModelJob(type), Gpu(), 3);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->precision, precision);
    EXPECT_EQ(options->device.ordinal, 2);
    EXPECT_EQ(options->threads, 3);
    EXPECT_EQ(options->max_batch, 2048u);
    EXPECT_EQ(options->device_memory_fraction, 0.7);
  }
}

TEST(JobNetOptionsTest, TheCpuRefusesGpuPrecisionsUnlessItOnlyEvaluates) {
  EXPECT_TRUE(NetOptionsOf(ModelJob(TrainConfig::BF16), ComputeDevice(), 1).ok());
  for (const auto type : {TrainConfig::TF32, TrainConfig::FP16}) {
    JobConfig job = ModelJob(type);
    const absl::Status status = NetOptionsOf(job, ComputeDevice(), 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("train.compute_dtype: " + TrainConfig::ComputeType_Name(type)));
    job.set_evaluate_only(true);
    EXPECT_TRUE(NetOptionsOf(job, ComputeDevice(), 1).ok());
  }
}

TEST(JobNetOptionsTest, MaxBatchIsThatOfTheRankWithMostLanes) {
  JobConfig job = ModelJob(TrainConfig::F32);
  job.mutable_eval()->clear_batch_size();
  job.set_worker_num(40);
  job.mutable_data()->set_shuffle_lanes(64);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->max_batch, 512u);
  job.mutable_strategy()->set_a_sync(false);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->max_batch, 640u);  // 2 of 64 lanes, of 20,480
  job.set_worker_num(32);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->max_batch, 512u);
  job.set_worker_num(40);
  job.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->max_batch, 512u);
}

TEST(JobNetOptionsTest, MergedBatchesAreComputedInPasses) {
  JobConfig job = ModelJob(TrainConfig::F32);
  job.mutable_eval()->clear_batch_size();
  job.mutable_strategy()->set_a_sync(false);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->pass_examples, 0u);
  job.set_worker_num(40);
  job.mutable_data()->set_shuffle_lanes(64);
  job.mutable_strategy()->mutable_sync_configs()->set_gradient_merge_steps(8);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->pass_examples, 512u);
  EXPECT_EQ(NetOptionsOf(job, ComputeDevice(), 1)->max_batch, 512u);
}

TEST(JobNetOptionsTest, TheShareOfMemoryComesFromTheJob) {
  JobConfig job = ModelJob(TrainConfig::F32);
  job.mutable_train()->set_device_memory_fraction(0.25);
  EXPECT_EQ(NetOptionsOf(job, Gpu(), 1)->device_memory_fraction, 0.25);
}

}  // namespace
}  // namespace sluice

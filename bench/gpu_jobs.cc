#include "bench/gpu_jobs.h"

#include "absl/strings/str_cat.h"
#include "bench/standard_model.h"
#include "model/net/cuda/cuda_device.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kWideDim = 64;
constexpr uint32_t kWideHidden[] = {1024, 512, 256};

}  // namespace

JobConfig GpuJob(bool wide, size_t batch, const std::string& data_glob,
                 const OptimizerConfig& optimizer) {
  JobConfig job = StandardJob(data_glob, batch, optimizer);
  if (!wide) return job;
  WideDeepConfig* model = job.mutable_model()->mutable_wide_deep();
  model->set_embedding_dim(kWideDim);
  model->clear_hidden_units();
  for (const uint32_t units : kWideHidden) model->add_hidden_units(units);
  return job;
}

absl::StatusOr<std::unique_ptr<GpuFloor>> GpuFloorOf(const JobConfig& job, const ModelStep& step,
                                                     MatmulPrecision precision) {
  const WideDeepConfig& model = job.model().wide_deep();
  GpuFloor::Shape shape;
  shape.batch = step.input().batch->n;
  shape.embeddings = kStandardCategories * model.embedding_dim();
  shape.widths = {shape.embeddings + kStandardNumbers};
  shape.widths.insert(shape.widths.end(), model.hidden_units().begin(), model.hidden_units().end());
  shape.bytes_up = step.bytes_up();
  shape.bytes_down = step.bytes_down();
  return GpuFloor::Create(shape, precision);
}

std::string NoGpu() {
  const auto devices = ListCudaDevices();
  return devices.ok() ? "" : absl::StrCat("no CUDA device (", devices.status().message(), ")");
}

}  // namespace sluice::bench

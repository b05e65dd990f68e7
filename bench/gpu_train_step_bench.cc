// train_step/gpu/{standard,wide}/batchN/{f32,tf32,bf16,fp16}: forward and backward on cuda:0, from
// values in host memory to gradients in host memory. As in the worker, rows are in the network's
// own memory, and the next batch (here the same one) is announced before each step. A step that
// overflows (fp16) counts no examples.
//
// The limit is the step's floor (gpu_floor.h), measured in the same repetition. Without a device
// the rows are skipped.
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gpu_jobs.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

struct GpuStep {
  absl::Status Train() {
    const NetInput& input = step->input();
    // The net need not own the batch, because the step outlives the net.
    const std::shared_ptr<const Batch> batch(std::shared_ptr<const void>(), input.batch);
    ComingBatch next;
    next.batch = batch;
    next.row_index = input.row_index;
    for (const RowsInput& rows : input.rows) next.num_rows.push_back(rows.n);
    net->Announce(std::move(next));
    return net->TrainStep(input, 1, 0, step->gradients());
  }

  Sample Measure() {
    Sample sample;
    sample.limit = floor->Measure(seconds) / 1e3;
    // fp16 may begin with too large a loss scale. A scale that never fits is an error.
    do {
      if (!Train().ok()) return Sample();
    } while (step->gradients()->skipped);
    uint64_t examples = 0;
    const double start = Now();
    do {
      if (!Train().ok()) return Sample();
      if (!step->gradients()->skipped) examples += step->input().batch->n;
    } while (Now() - start < seconds);
    sample.value = examples / (Now() - start) / 1e3;
    return sample;
  }

  double seconds = 0;
  std::unique_ptr<ModelStep> step;
  std::unique_ptr<DenseNet> net;
  std::unique_ptr<GpuFloor> floor;
};

absl::StatusOr<std::function<Sample()>> PrepareGpuStep(bool wide, size_t batch,
                                                       MatmulPrecision precision,
                                                       const Settings& settings) {
  OptimizerConfig sgd;
  sgd.mutable_sgd();
  const JobConfig job = GpuJob(wide, batch, "none.tsv", sgd);
  auto gpu = std::make_shared<GpuStep>();
  gpu->seconds = settings.quick ? 0.02 : 0.3;
  SLUICE_ASSIGN_OR_RETURN(gpu->step, ModelStep::Create(job, batch, 0));
  NetOptions options;
  options.device.kind = ComputeDevice::kCuda;
  options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  options.max_batch = batch;
  options.precision = precision;
  SLUICE_ASSIGN_OR_RETURN(gpu->net, gpu->step->model().CreateNet(options));
  gpu->step->PutRowsInto(gpu->net->host_memory());
  SLUICE_ASSIGN_OR_RETURN(gpu->floor, GpuFloorOf(job, *gpu->step, precision));
  return std::function<Sample()>([gpu] { return gpu->Measure(); });
}

}  // namespace

void AddGpuTrainStepBenchmarks(std::vector<Benchmark>* to) {
  for (const bool wide : {false, true}) {
    for (const size_t batch : {4096, 16384, 65536}) {
      for (const MatmulPrecision precision : {MatmulPrecision::kF32, MatmulPrecision::kTf32,
                                              MatmulPrecision::kBf16, MatmulPrecision::kFp16}) {
        Benchmark benchmark;
        benchmark.name = absl::StrCat("train_step/gpu/", wide ? "wide" : "standard", "/batch",
                                      batch, "/", NameOf(precision));
        benchmark.unit = "k/s";
        benchmark.limit_name = "cuBLAS + copies";
        benchmark.few_repetitions = 5;
        benchmark.unfit = NoGpu;
        benchmark.prepare = [=](const Settings& settings) {
          return PrepareGpuStep(wide, batch, precision, settings);
        };
        to->push_back(std::move(benchmark));
      }
    }
  }
}

}  // namespace sluice::bench

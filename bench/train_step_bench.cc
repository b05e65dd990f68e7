// train_step/sync/batch2048/f32/denseN: each category has N rows in a dense table.
//
// train_step/{async,sync}/batchN/f32: forward and backward of the standard model in this process,
// one thread.
//
// The limit is the step's nine matrix products alone, on one thread, for as many examples. Both are
// measured in processor time.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gemm_floor.h"
#include "bench/model_step.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

class TrainStep {
 public:
  static absl::StatusOr<std::shared_ptr<TrainStep>> Create(size_t batch, bool sync,
                                                           uint64_t dense_rows, double seconds) {
    OptimizerConfig sgd;
    sgd.mutable_sgd();
    JobConfig job = StandardJob("none.tsv", batch, sgd);
    if (dense_rows > 0) UseDenseCategories(dense_rows, &job);
    auto step = std::make_shared<TrainStep>(batch, seconds);
    // Sync: the global batch of two workers in sixteen pieces.
    SLUICE_ASSIGN_OR_RETURN(step->step_, ModelStep::Create(job, batch, sync ? 2 * batch / 16 : 0));
    SLUICE_ASSIGN_OR_RETURN(step->net_, step->step_->model().CreateNet(CpuNet(1, batch)));
    return step;
  }
  TrainStep(size_t batch, double seconds)
      : seconds_(seconds), floor_(batch, GemmFloor::Type::kF32, 1) {}

  Sample Measure() {
    Sample sample;
    sample.limit = floor_.Measure(seconds_) / 1e3;
    const double start = ThreadNow();
    uint64_t examples = 0;
    double spent = 0;
    while (examples == 0 || spent < seconds_) {
      if (!net_->TrainStep(step_->input(), 1, 0, step_->gradients()).ok()) return Sample();
      examples += step_->input().batch->n;
      spent = ThreadNow() - start;
    }
    sample.value = examples / spent / 1e3;
    return sample;
  }

 private:
  const double seconds_;
  GemmFloor floor_;
  std::unique_ptr<ModelStep> step_;
  std::unique_ptr<DenseNet> net_;
};

Benchmark StepBenchmark(size_t batch, bool sync, uint64_t dense_rows) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("train_step/", sync ? "sync" : "async", "/batch", batch, "/f32");
  if (dense_rows > 0) absl::StrAppend(&benchmark.name, "/dense", dense_rows);
  benchmark.unit = "k/s";
  benchmark.limit_name = "gemm_floor, one thread";
  benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(
        std::shared_ptr<TrainStep> step,
        TrainStep::Create(batch, sync, dense_rows, settings.quick ? 0.01 : 0.3));
    return std::function<Sample()>([step] { return step->Measure(); });
  };
  return benchmark;
}

}  // namespace

void AddTrainStepBenchmarks(std::vector<Benchmark>* to) {
  for (const bool sync : {false, true}) {
    for (const size_t batch : {512, 2048, 8192}) to->push_back(StepBenchmark(batch, sync, 0));
  }
  for (const uint64_t rows : {1000, 100000}) to->push_back(StepBenchmark(2048, true, rows));
}

}  // namespace sluice::bench

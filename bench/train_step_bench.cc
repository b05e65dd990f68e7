// train_step/{async,sync}/batchN/f32: forward and backward of the standard model in this process,
// one thread.
//
// The limit is the step's nine matrix products alone, on one thread, for as many examples. Both by
// processor time.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gemm_floor.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "model/model.h"

namespace sluice::bench {
namespace {

class TrainStep {
 public:
  static absl::StatusOr<std::shared_ptr<TrainStep>> Create(size_t batch, bool sync,
                                                           double seconds) {
    OptimizerConfig sgd;
    sgd.mutable_sgd();
    SLUICE_ASSIGN_OR_RETURN(const JobConfig job,
                            EffectiveJobConfig(StandardJob("none.tsv", batch, sgd), ""));
    auto step = std::make_shared<TrainStep>(batch, seconds);
    SLUICE_ASSIGN_OR_RETURN(step->model_, Model::Create(job));
    SLUICE_ASSIGN_OR_RETURN(step->net_, step->model_->CreateNet(CpuNet(1, batch)));
    step->Fill(batch, sync);
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
      if (!net_->TrainStep(input_, 1, 0, &gradients_).ok()) return Sample();
      examples += batch_.n;
      spent = ThreadNow() - start;
    }
    sample.value = examples / spent / 1e3;
    return sample;
  }

 private:
  void Fill(size_t n, bool sync) {
    const size_t rows = MakeStandardBatch(n, &batch_, &row_index_);
    if (sync) batch_.chunk = 2 * n / 16;  // two workers' global batch in sixteen pieces
    rows_.resize(rows * kStandardDim);
    row_gradients_.resize(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i)
      rows_[i] = static_cast<float>(i % 64) * 1e-3f - 0.032f;
    for (const int table : model_->dense_tables()) {
      size_t elements = 1;
      for (const uint64_t size : model_->tables()[table].shape()) elements *= size;
      dense_.emplace_back(elements);
      for (size_t i = 0; i < elements; ++i)
        dense_.back()[i] = static_cast<float>(i * 37 % 64) * 2e-3f - 0.063f;
    }
    dense_gradients_ = dense_;
    input_.batch = &batch_;
    input_.row_index = row_index_.data();
    input_.rows = rows_.data();
    input_.num_rows = rows;
    gradients_.rows = row_gradients_.data();
    for (size_t i = 0; i < dense_.size(); ++i) {
      input_.dense.push_back(dense_[i].data());
      gradients_.dense.push_back(dense_gradients_[i].data());
    }
  }

  const double seconds_;
  GemmFloor floor_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DenseNet> net_;
  Batch batch_;
  std::vector<uint32_t> row_index_;
  std::vector<float> rows_, row_gradients_;
  std::vector<std::vector<float>> dense_, dense_gradients_;
  NetInput input_;
  NetGradients gradients_;
};

}  // namespace

void AddTrainStepBenchmarks(std::vector<Benchmark>* to) {
  for (const bool sync : {false, true}) {
    for (const size_t batch : {512, 2048, 8192}) {
      Benchmark benchmark;
      benchmark.name =
          absl::StrCat("train_step/", sync ? "sync" : "async", "/batch", batch, "/f32");
      benchmark.unit = "k/s";
      benchmark.limit_name = "gemm_floor, one thread";
      benchmark.prepare =
          [batch, sync](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
        SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<TrainStep> step,
                                TrainStep::Create(batch, sync, settings.quick ? 0.01 : 0.3));
        return std::function<Sample()>([step] { return step->Measure(); });
      };
      to->push_back(std::move(benchmark));
    }
  }
}

}  // namespace sluice::bench

// train/MODE/batchN/OPTIMIZER/{f32,bf16}: thousand examples per second of a whole job: `sluice
// launch` with one pserver and two workers of one thread each, on generated data of Criteo's shape.
// Variants of train/async/batch2048/sgd/f32: pservers4 spreads the work over four pservers;
// hot_rows has a hot_row_cache of the default size and staleness; text parses its data in every
// epoch instead of mapping the cache. They have the default transport.
// train/{sync,collective}/.../dense1000: each category has 1000 rows in a dense table, on the
// pserver or on the workers (sync_configs.dense: COLLECTIVE).
//
// train/gpu/async/{standard,wide}/batchN: one worker on cuda:0 (`--gpus=0`), SGD. Without a device
// these rows are skipped.
//
// The figure is that of the last epoch, when processes are up and caches are warm. The limit is the
// step's nine matrix products alone on all cores, or on a GPU the floor of gpu_floor.h. It is
// measured before and after the job in the same repetition.
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gemm_floor.h"
#include "bench/gpu_jobs.h"
#include "bench/launched_job.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

struct Mode {
  const char* name;
  const char* a_sync;
  const char* k_steps;
};
constexpr Mode kModes[] = {{"async", "true", "0"},
                           {"sync", "false", "0"},
                           {"geo20", "true", "20"},
                           {"geo100", "true", "100"}};

struct JobShape {
  uint32_t batch = 2048;
  bool bf16 = false;
  int pservers = 1;
  bool hot_rows = false;
  uint32_t depth = 1;  // steps in flight
  bool cache = true;   // false: each epoch parses the text
  uint64_t dense = 0;  // rows of each category in a dense table; 0: the sparse table
};

constexpr Mode kCollective = {"collective", "false", "0"};
constexpr uint64_t kDenseRows = 1000;

// A GPU trains faster than one thread reads, and than one stream to one pserver answers.
constexpr uint32_t kGpuReaders = 8;
constexpr int kGpuPservers = 4;

// A job, between two measurements of its floor in examples a second.
class TrainRun {
 public:
  // Returns examples per second, over that many seconds.
  using Floor = std::function<double(double seconds)>;
  TrainRun(JobFile job, std::vector<std::string> flags, bool quick, Floor floor)
      : job_(std::move(job), std::move(flags), quick ? 1 : 2),
        floor_seconds_(quick ? 0.02 : 0.5),
        floor_(std::move(floor)) {}

  Sample Measure() {
    const double before = floor_(floor_seconds_);
    const double rate = job_.Measure();
    const double after = floor_(floor_seconds_);
    return {rate, (before + after) / 2 / 1e3};
  }

 private:
  const LaunchedJob job_;
  const double floor_seconds_;
  const Floor floor_;
};

Benchmark TrainBenchmark(const Mode& mode, const JobShape& shape, const std::string& rule,
                         const OptimizerConfig& optimizer) {
  const bool collective = std::string_view(mode.name) == kCollective.name;
  Benchmark benchmark;
  benchmark.name = absl::StrCat("train/", mode.name, "/batch", shape.batch, "/", rule, "/",
                                shape.bf16 ? "bf16" : "f32");
  if (shape.pservers > 1) absl::StrAppend(&benchmark.name, "/pservers", shape.pservers);
  if (shape.hot_rows) absl::StrAppend(&benchmark.name, "/hot_rows");
  if (shape.depth > 1) absl::StrAppend(&benchmark.name, "/depth", shape.depth);
  if (!shape.cache) absl::StrAppend(&benchmark.name, "/text");
  if (shape.dense > 0) absl::StrAppend(&benchmark.name, "/dense", shape.dense);
  benchmark.unit = "k/s";
  benchmark.limit_name = "gemm_floor";
  benchmark.few_repetitions = 5;
  benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const TrainData data, DataFor(settings));
    JobConfig job = StandardJob(data.files, shape.batch, optimizer);
    if (shape.hot_rows) job.mutable_strategy()->mutable_a_sync_configs()->mutable_hot_row_cache();
    if (shape.bf16) job.mutable_train()->set_compute_dtype(TrainConfig::BF16);
    if (shape.depth > 1) job.mutable_train()->set_pipeline_depth(shape.depth);
    job.mutable_data()->set_cache(shape.cache);
    if (shape.dense > 0) UseDenseCategories(shape.dense, &job);
    if (collective)
      job.mutable_strategy()->mutable_sync_configs()->set_dense(SyncConfigs::COLLECTIVE);
    const auto floor = std::make_shared<GemmFloor>(
        shape.batch, shape.bf16 ? GemmFloor::Type::kBf16 : GemmFloor::Type::kF32,
        static_cast<int>(std::thread::hardware_concurrency()));
    const std::vector<std::string> flags = {
        absl::StrCat("--server_num=", shape.pservers), "--worker_num=2",
        absl::StrCat("--a_sync=", mode.a_sync), absl::StrCat("--k_steps=", mode.k_steps)};
    SLUICE_ASSIGN_OR_RETURN(JobFile file, WriteJob(job, data));
    auto run =
        std::make_shared<TrainRun>(std::move(file), flags, settings.quick,
                                   [floor](double seconds) { return floor->Measure(seconds); });
    return std::function<Sample()>([run] { return run->Measure(); });
  };
  return benchmark;
}

Benchmark GpuTrainBenchmark(bool wide, uint32_t batch, const OptimizerConfig& optimizer) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("train/gpu/async/", wide ? "wide" : "standard", "/batch", batch);
  benchmark.unit = "k/s";
  benchmark.limit_name = "cuBLAS + copies";
  benchmark.few_repetitions = 5;
  benchmark.unfit = NoGpu;
  benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const TrainData data, DataFor(settings));
    JobConfig job = GpuJob(wide, batch, data.files, optimizer);
    job.set_worker_num(1);
    job.mutable_train()->clear_threads();  // its copies may use all cores
    job.mutable_train()->set_reader_threads(kGpuReaders);
    job.mutable_train()->set_pipeline_depth(2);
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelStep> step,
                            ModelStep::Create(job, batch, 0));
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<GpuFloor> made,
                            GpuFloorOf(job, *step, MatmulPrecision::kF32));
    const std::shared_ptr<GpuFloor> floor = std::move(made);
    const std::vector<std::string> flags = {absl::StrCat("--server_num=", kGpuPservers), "--gpus=0",
                                            "--a_sync=true", "--k_steps=0"};
    SLUICE_ASSIGN_OR_RETURN(JobFile file, WriteJob(job, data));
    auto run =
        std::make_shared<TrainRun>(std::move(file), flags, settings.quick,
                                   [floor](double seconds) { return floor->Measure(seconds); });
    return std::function<Sample()>([run] { return run->Measure(); });
  };
  return benchmark;
}

}  // namespace

void AddTrainBenchmarks(std::vector<Benchmark>* to) {
  OptimizerConfig sgd, adagrad, adam;
  sgd.mutable_sgd();
  sgd.set_learning_rate(0.05f);
  adagrad.mutable_adagrad()->set_initial_accumulator(0.1f);
  adam.mutable_adam();
  for (const Mode& mode : kModes) {
    for (const uint32_t batch : {512u, 2048u, 8192u}) {
      to->push_back(TrainBenchmark(mode, {batch}, "sgd", sgd));
      to->push_back(TrainBenchmark(mode, {batch}, "adagrad", adagrad));
      to->push_back(TrainBenchmark(mode, {batch}, "adam", adam));
      to->push_back(TrainBenchmark(mode, {batch, /*bf16=*/true}, "adagrad", adagrad));
    }
  }
  JobShape spread;
  spread.pservers = 4;
  to->push_back(TrainBenchmark(kModes[0], spread, "sgd", sgd));
  JobShape hot;
  hot.hot_rows = true;
  to->push_back(TrainBenchmark(kModes[0], hot, "sgd", sgd));
  JobShape deep;
  deep.depth = 2;
  to->push_back(TrainBenchmark(kModes[0], deep, "sgd", sgd));
  for (const uint32_t batch : {512u, 2048u, 8192u}) {
    JobShape dense;
    dense.batch = batch;
    dense.dense = kDenseRows;
    to->push_back(TrainBenchmark(kModes[1], dense, "sgd", sgd));
    to->push_back(TrainBenchmark(kCollective, dense, "sgd", sgd));
  }
  JobShape text;
  text.cache = false;
  to->push_back(TrainBenchmark(kModes[0], text, "sgd", sgd));
  for (const bool wide : {false, true}) {
    for (const uint32_t batch : {4096u, 16384u, 65536u})
      to->push_back(GpuTrainBenchmark(wide, batch, sgd));
  }
}

}  // namespace sluice::bench

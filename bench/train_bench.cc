// train/MODE/batchN/OPTIMIZER/{f32,bf16}: thousand examples per second of a whole job: `sluice
// launch` with one pserver and two workers of one thread each, on generated data of Criteo's shape.
// Variants of train/async/batch2048/sgd/f32: pservers4 spreads the work over four pservers;
// hot_rows has a hot_row_cache of the default size and staleness; text parses its data in every
// epoch instead of mapping the cache. tls/train/...: the cluster has mutual TLS; the limit is the
// same job without, over gRPC too, measured in the same repetition. .../sgd/f32/shm: through shared
// memory; the limit is the same job over gRPC. The other rows have the default transport.
// train/{sync,collective}/.../dense1000: each category has 1000 rows in a dense table, on the
// pserver or on the workers (sync_configs.dense: COLLECTIVE).
//
// train/gpu/async/{standard,wide}/batchN: one worker on cuda:0 (`--gpus=0`), SGD. Without a device
// these rows are skipped.
//
// The figure is that of the last epoch, when processes are up and caches are warm. The limit is the
// step's nine matrix products alone on all cores, or on a GPU the floor of gpu_floor.h. It is
// measured before and after the job in the same repetition.
#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gemm_floor.h"
#include "bench/gpu_jobs.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "bench/temporary_folder.h"
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

struct Shape {
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

// Runs a program from this program's folder to its end. Its output goes to `log`. Returns its exit
// code.
int RunProgram(const std::string& program, const std::vector<std::string>& arguments,
               const std::string& log) {
  const std::string path =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out >= 0) {
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
    }
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Training data that the rows of one process share.
absl::StatusOr<std::shared_ptr<TemporaryFolder>> Data(uint64_t examples) {
  static std::weak_ptr<TemporaryFolder> shared;
  if (auto data = shared.lock()) return data;
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<TemporaryFolder> data, TemporaryFolder::Create());
  SLUICE_RETURN_IF_ERROR(WriteStandardData(data->path(), examples, 4));
  shared = data;
  return data;
}

class TrainRun {
 public:
  // Returns examples per second, over that many seconds.
  using Floor = std::function<double(double seconds)>;
  // `flags` give sluice launch the mode, pservers and workers. `data` holds generated data, or
  // null.
  TrainRun(std::shared_ptr<TemporaryFolder> data, std::vector<std::string> flags,
           const JobConfig& job, bool quick, Floor floor)
      : data_(std::move(data)),
        flags_(std::move(flags)),
        job_(job),
        epochs_(quick ? 1 : 2),
        floor_seconds_(quick ? 0.02 : 0.5),
        floor_(std::move(floor)) {}

  Sample Measure() {
    const double before = floor_(floor_seconds_);
    const absl::StatusOr<double> rate = ExamplesPerSecond();
    if (!rate.ok()) {
      std::fprintf(stderr, "%s\n", rate.status().ToString().c_str());
      return Sample();
    }
    const double after = floor_(floor_seconds_);
    return {*rate / 1e3, (before + after) / 2 / 1e3};
  }

 private:
  absl::StatusOr<double> ExamplesPerSecond() const {
    SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<TemporaryFolder> folder,
                            TemporaryFolder::Create());
    const std::string dir = folder->path();
    std::string text;
    google::protobuf::TextFormat::PrintToString(job_, &text);
    std::ofstream(dir + "/job.textproto") << text;
    std::vector<std::string> arguments = {
        "launch", absl::StrCat("--job=", dir, "/job.textproto"), absl::StrCat("--epochs=", epochs_),
        absl::StrCat("--output_dir=", dir, "/out"), absl::StrCat("--log_dir=", dir, "/log")};
    arguments.insert(arguments.end(), flags_.begin(), flags_.end());
    const int code = RunProgram("sluice", arguments, dir + "/printed");
    if (code != 0) {
      return absl::InternalError(
          absl::StrCat("sluice launch ended with ", code, ": ", ReadAll(dir + "/printed")));
    }
    google::protobuf::Struct result;
    if (!google::protobuf::util::JsonStringToMessage(ReadAll(dir + "/out/result.json"), &result)
             .ok()) {
      return absl::InternalError("sluice launch wrote no result.json");
    }
    const auto& log = result.fields().at("epochs_log").list_value();
    const auto& last = log.values(log.values_size() - 1).struct_value().fields();
    return last.at("examples").number_value() / last.at("seconds").number_value();
  }

  const std::shared_ptr<TemporaryFolder> data_;
  const std::vector<std::string> flags_;
  const JobConfig job_;
  const int epochs_;
  const double floor_seconds_;
  const Floor floor_;
};

struct TrainData {
  std::shared_ptr<TemporaryFolder> made;  // null: the data was given by a flag
  std::string files;
};
absl::StatusOr<TrainData> DataFor(const Settings& settings) {
  TrainData data{nullptr, settings.train_data};
  if (!data.files.empty()) return data;
  SLUICE_ASSIGN_OR_RETURN(data.made, Data(settings.quick ? 4000 : 300000));
  data.files = data.made->path() + "/*.tsv";
  return data;
}

Benchmark TrainBenchmark(const Mode& mode, const Shape& shape, const std::string& rule,
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
    auto run =
        std::make_shared<TrainRun>(data.made, flags, job, settings.quick,
                                   [floor](double seconds) { return floor->Measure(seconds); });
    return std::function<Sample()>([run] { return run->Measure(); });
  };
  return benchmark;
}

// A job with other flags beside the same job over gRPC without TLS. The two take turns at being
// first.
Benchmark PairBenchmark(std::string name, std::string limit_name, std::vector<std::string> with,
                        const Mode& mode, uint32_t batch, const OptimizerConfig& optimizer) {
  Benchmark benchmark;
  benchmark.name = std::move(name);
  benchmark.unit = "k/s";
  benchmark.limit_name = std::move(limit_name);
  benchmark.few_repetitions = 9;
  benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const TrainData data, DataFor(settings));
    const JobConfig job = StandardJob(data.files, batch, optimizer);
    const std::vector<std::string> flags = {"--server_num=1", "--worker_num=2",
                                            absl::StrCat("--a_sync=", mode.a_sync),
                                            absl::StrCat("--k_steps=", mode.k_steps)};
    std::vector<std::string> of_plain = flags, of_other = flags;
    of_plain.push_back("--transport=grpc");
    of_other.insert(of_other.end(), with.begin(), with.end());
    const auto no_floor = [](double) { return 0.0; };
    const auto plain =
        std::make_shared<TrainRun>(data.made, of_plain, job, settings.quick, no_floor);
    const auto other =
        std::make_shared<TrainRun>(data.made, of_other, job, settings.quick, no_floor);
    const auto turn = std::make_shared<int>(0);
    return std::function<Sample()>([plain, other, turn] {
      Sample sample;
      const bool other_first = (*turn)++ % 2 == 0;
      if (other_first) sample.value = other->Measure().value;
      sample.limit = plain->Measure().value;
      if (!other_first) sample.value = other->Measure().value;
      return sample;
    });
  };
  return benchmark;
}

Benchmark TlsTrainBenchmark(const Mode& mode, uint32_t batch, const OptimizerConfig& optimizer) {
  return PairBenchmark(absl::StrCat("tls/train/", mode.name, "/batch", batch, "/sgd/f32"),
                       "the same without TLS", {"--tls", "--transport=grpc"}, mode, batch,
                       optimizer);
}

Benchmark ShmTrainBenchmark(const Mode& mode, uint32_t batch, const OptimizerConfig& optimizer) {
  return PairBenchmark(absl::StrCat("train/", mode.name, "/batch", batch, "/sgd/f32/shm"),
                       "the same over gRPC", {"--transport=shm"}, mode, batch, optimizer);
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
    auto run =
        std::make_shared<TrainRun>(data.made, flags, job, settings.quick,
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
  Shape spread;
  spread.pservers = 4;
  to->push_back(TrainBenchmark(kModes[0], spread, "sgd", sgd));
  Shape hot;
  hot.hot_rows = true;
  to->push_back(TrainBenchmark(kModes[0], hot, "sgd", sgd));
  Shape deep;
  deep.depth = 2;
  to->push_back(TrainBenchmark(kModes[0], deep, "sgd", sgd));
  for (const uint32_t batch : {512u, 2048u, 8192u}) {
    Shape dense;
    dense.batch = batch;
    dense.dense = kDenseRows;
    to->push_back(TrainBenchmark(kModes[1], dense, "sgd", sgd));
    to->push_back(TrainBenchmark(kCollective, dense, "sgd", sgd));
  }
  Shape text;
  text.cache = false;
  to->push_back(TrainBenchmark(kModes[0], text, "sgd", sgd));
  for (const Mode& mode : {kModes[0], kModes[1]}) {
    for (const uint32_t batch : {512u, 2048u}) to->push_back(TlsTrainBenchmark(mode, batch, sgd));
    for (const uint32_t batch : {512u, 2048u, 8192u})
      to->push_back(ShmTrainBenchmark(mode, batch, sgd));
  }
  for (const bool wide : {false, true}) {
    for (const uint32_t batch : {4096u, 16384u, 65536u})
      to->push_back(GpuTrainBenchmark(wide, batch, sgd));
  }
}

}  // namespace sluice::bench

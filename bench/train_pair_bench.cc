// Whole jobs beside the same job run in another way. Both are launched in each repetition; they
// take turns at being first.
//
// clang-format off
//   row                                          value             limit
//   tls/train/MODE/batchN/sgd/f32                mutual TLS, gRPC  without TLS, gRPC
//   tls/train/async/batch2048/sgd/f32/shm        mutual TLS        without TLS; shared memory both
//   train/MODE/batchN/sgd/f32/shm                shared memory     gRPC
//   train/MODE/adult/shm                         shared memory     gRPC
//   train/sync/batchN/sgd/f32/collective_dense   the workers keep  the pserver keeps the dense tables
//   train/sync/batch2048/sgd/f32/over_async      sync              async
//   .../collective_dense/over_async              sync, the workers keep the dense tables; async
// clang-format on
//
// The jobs are the standard one, with a pserver and two workers of one thread, and the shipped
// Adult job, with two pservers and two workers of one thread. Rows that do not name a transport
// have the default one, which is shared memory.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/launched_job.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

using Flags = std::vector<std::string>;

struct PairMode {
  const char* name;
  const char* flag;
};
constexpr PairMode kAsync = {"async", "--a_sync=true"};
constexpr PairMode kSync = {"sync", "--a_sync=false"};
constexpr char kGrpc[] = "--transport=grpc";
constexpr char kShm[] = "--transport=shm";
constexpr char kCollectiveDense[] = "--set=strategy.sync_configs.dense=COLLECTIVE";

// An epoch of Adult takes about 0.2 s: so many that a measurement takes seconds.
constexpr int kAdultEpochs = 21;

// A job and how both launches differ.
struct Pair {
  std::string name;
  std::string limit_name;
  int epochs = 2;
  Flags both, value, limit;
  std::function<absl::StatusOr<JobFile>(const Settings&)> job;
  std::function<std::string()> unfit = nullptr;
};

Flags Join(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Benchmark PairBenchmark(const Pair& pair) {
  Benchmark benchmark;
  benchmark.name = pair.name;
  benchmark.unit = "k/s";
  benchmark.limit_name = pair.limit_name;
  benchmark.few_repetitions = 9;
  benchmark.unfit = pair.unfit;
  benchmark.prepare = [pair](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const JobFile job, pair.job(settings));
    const int epochs = settings.quick ? 1 : pair.epochs;
    const auto value = std::make_shared<LaunchedJob>(job, Join(pair.both, pair.value), epochs);
    const auto limit = std::make_shared<LaunchedJob>(job, Join(pair.both, pair.limit), epochs);
    const auto turn = std::make_shared<int>(0);
    return std::function<Sample()>([value, limit, turn] {
      Sample sample;
      const bool value_first = (*turn)++ % 2 == 0;
      if (value_first) sample.value = value->Measure();
      sample.limit = limit->Measure();
      if (!value_first) sample.value = value->Measure();
      // Without a limit, the measurement has failed.
      return sample.limit > 0 ? sample : Sample();
    });
  };
  return benchmark;
}

// The standard job with SGD. `value` and `limit` name a mode each, unless `both` does.
Pair StandardPair(std::string name, std::string limit_name, uint32_t batch, Flags both, Flags value,
                  Flags limit) {
  Pair pair;
  pair.name = std::move(name);
  pair.limit_name = std::move(limit_name);
  pair.both = Join({"--server_num=1", "--worker_num=2", "--k_steps=0"}, both);
  pair.value = std::move(value);
  pair.limit = std::move(limit);
  pair.job = [batch](const Settings& settings) -> absl::StatusOr<JobFile> {
    OptimizerConfig sgd;
    sgd.mutable_sgd();
    sgd.set_learning_rate(0.05f);
    SLUICE_ASSIGN_OR_RETURN(const TrainData data, DataFor(settings));
    return WriteJob(StandardJob(data.files, batch, sgd), data);
  };
  return pair;
}

Pair AdultPair(const PairMode& mode) {
  Pair pair;
  pair.name = absl::StrCat("train/", mode.name, "/adult/shm");
  pair.limit_name = "the same over gRPC";
  pair.epochs = kAdultEpochs;
  // Only the last epoch is evaluated: the others follow each other without a pause.
  pair.both = {"--server_num=2", "--worker_num=2", "--threads=1", mode.flag,
               "--set=eval.every_epochs=0"};
  pair.value = {kShm};
  pair.limit = {kGrpc};
  pair.job = [](const Settings&) { return AdultJob(); };
  pair.unfit = [] { return std::string(AdultJob().status().message()); };
  return pair;
}

std::string Named(const char* before, const PairMode& mode, uint32_t batch, const char* after) {
  return absl::StrCat(before, mode.name, "/batch", batch, "/sgd/f32", after);
}

Pair Tls(const PairMode& mode, uint32_t batch) {
  return StandardPair(Named("tls/train/", mode, batch, ""), "the same without TLS", batch,
                      {mode.flag, kGrpc}, {"--tls"}, {});
}

Pair Shm(const PairMode& mode, uint32_t batch) {
  return StandardPair(Named("train/", mode, batch, "/shm"), "the same over gRPC", batch,
                      {mode.flag}, {kShm}, {kGrpc});
}

Pair CollectiveDense(uint32_t batch) {
  return StandardPair(Named("train/", kSync, batch, "/collective_dense"),
                      "dense tables on the pserver", batch, {kSync.flag}, {kCollectiveDense}, {});
}

Pair OverAsync(const char* variant, Flags flags) {
  constexpr uint32_t kBatch = 2048;
  return StandardPair(absl::StrCat(Named("train/", kSync, kBatch, variant), "/over_async"),
                      "the same in async", kBatch, {}, Join({kSync.flag}, flags), {kAsync.flag});
}

}  // namespace

void AddTrainPairBenchmarks(std::vector<Benchmark>* to) {
  std::vector<Pair> pairs;
  for (const PairMode& mode : {kAsync, kSync}) {
    for (const uint32_t batch : {512u, 2048u}) pairs.push_back(Tls(mode, batch));
    for (const uint32_t batch : {512u, 2048u, 8192u}) pairs.push_back(Shm(mode, batch));
    pairs.push_back(AdultPair(mode));
  }
  pairs.push_back(StandardPair(Named("tls/train/", kAsync, 2048, "/shm"), "the same without TLS",
                               2048, {kAsync.flag, kShm}, {"--tls"}, {}));
  for (const uint32_t batch : {512u, 2048u, 8192u}) pairs.push_back(CollectiveDense(batch));
  pairs.push_back(OverAsync("", {}));
  pairs.push_back(OverAsync("/collective_dense", {kCollectiveDense}));
  for (const Pair& pair : pairs) to->push_back(PairBenchmark(pair));
}

}  // namespace sluice::bench

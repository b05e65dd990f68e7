// Measures the rows of the benchmark: each is a figure with the limit measured in the same run.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::bench {

struct Settings {
  bool quick = false;    // small sizes, few repetitions: shows that everything runs, not how fast
  int repetitions = 11;  // of figure and limit, one after the other
  // Criteo TSV for the train rows, an absolute glob; empty: generated for the run.
  std::string train_data;
  std::string malloc = "as it comes";  // the malloc settings of this process, for the report
};

// One repetition: figure and limit in the row's unit.
struct Sample {
  double value = 0;
  double limit = 0;
};

struct Row {
  std::string name;  // stable: "kernel/adam/f32"
  std::string unit;
  double value = 0;  // median
  double limit = 0;  // median
  std::string limit_name;
  // value / limit: below 1 for rates (higher is better), above 1 for times (lower is better).
  double ratio = 0;
  int repetitions = 0;
  double min = 0, max = 0;  // of value
};

struct Benchmark {
  std::string name;
  std::string unit;
  std::string limit_name;
  // Prepares, and returns the function that measures once and owns what was prepared.
  std::function<absl::StatusOr<std::function<Sample()>>(const Settings&)> prepare;
  // For rows that take many seconds and warm up by themselves: at most this many repetitions (one
  // with quick) and none to warm up. 0: as in Settings.
  int few_repetitions = 0;
  // Says why this machine cannot measure the row, e.g. "no CUDA device". Empty or unset: it can.
  std::function<std::string()> unfit;
};

// Runs one repetition to warm up, then `settings.repetitions` that count. Errors name the row.
// INTERNAL when a value is 0 or less: the measurement has failed and printed why.
absl::StatusOr<Row> Run(const Benchmark& benchmark, const Settings& settings);
// Like Run for several rows that take turns: one repetition of each, then the next of each. All
// rows are prepared at the same time.
absl::StatusOr<std::vector<Row>> RunInTurns(const std::vector<const Benchmark*>& benchmarks,
                                            const Settings& settings);

// Each adds the rows of one file.
void AddKernelBenchmarks(std::vector<Benchmark>* to);
void AddRowStoreBenchmarks(std::vector<Benchmark>* to);
void AddRowStoreGrowthBenchmarks(std::vector<Benchmark>* to);
void AddRowSweepBenchmarks(std::vector<Benchmark>* to);
void AddStreamBenchmarks(std::vector<Benchmark>* to);
void AddDenseBenchmarks(std::vector<Benchmark>* to);
void AddSparseBenchmarks(std::vector<Benchmark>* to);
void AddModelLoadBenchmarks(std::vector<Benchmark>* to);
void AddCheckpointBenchmarks(std::vector<Benchmark>* to);
void AddReaderBenchmarks(std::vector<Benchmark>* to);
void AddDedupBenchmarks(std::vector<Benchmark>* to);
void AddTrainStepBenchmarks(std::vector<Benchmark>* to);
void AddGpuTrainStepBenchmarks(std::vector<Benchmark>* to);
void AddTrainBenchmarks(std::vector<Benchmark>* to);
void AddTrainPairBenchmarks(std::vector<Benchmark>* to);
void AddSchedulerBenchmarks(std::vector<Benchmark>* to);
void AddCollectiveBenchmarks(std::vector<Benchmark>* to);

// Describes in two lines what the figures were measured on; warns when asserts are compiled in.
std::string DescribeMachine(const Settings& settings);
std::string TableHeader();
std::string TableLine(const Row& row);
std::string ToJson(const std::vector<Row>& rows);

// Seconds since an arbitrary start.
double Now();
// Seconds of processor time of the calling thread.
double ThreadNow();

}  // namespace sluice::bench

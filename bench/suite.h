// Rows of the benchmark: each a figure beside the limit that the same run measured for it.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::bench {

struct Settings {
  bool quick = false;    // small and few: shows that everything runs, not how fast
  int repetitions = 11;  // of figure and limit, one after the other
  // Criteo TSV for the train rows, an absolute glob; empty: made for the run.
  std::string train_data;
  std::string malloc = "as it comes";  // what was asked of it
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
  double ratio =
      0;  // value / limit: below 1 for rates (higher is better), above 1 for times (lower is)
  int repetitions = 0;
  double min = 0, max = 0;  // of value
};

struct Benchmark {
  std::string name;
  std::string unit;
  std::string limit_name;
  // Prepares, then returns the function that measures once; what it captured goes with it.
  std::function<absl::StatusOr<std::function<Sample()>>(const Settings&)> prepare;
  // Rows that take many seconds and warm up by themselves: so many repetitions at most (quick:
  // one), none to warm up. 0: as said.
  int few_repetitions = 0;
  // Why this machine cannot measure the row, e.g. "no CUDA device"; empty: it can. Unset: it can.
  std::function<std::string()> unfit;
};

// One repetition to warm up, then `settings.repetitions` that count. Errors name the row; a value
// of 0 or less says that the measurement failed (and said why): INTERNAL.
absl::StatusOr<Row> Run(const Benchmark& benchmark, const Settings& settings);
// The same for several, which take turns: a repetition of each, then the next of each. All stay
// prepared at once.
absl::StatusOr<std::vector<Row>> RunInTurns(const std::vector<const Benchmark*>& benchmarks,
                                            const Settings& settings);

// What each file of rows adds.
void AddKernelBenchmarks(std::vector<Benchmark>* to);
void AddRowStoreBenchmarks(std::vector<Benchmark>* to);
void AddRowStoreGrowthBenchmarks(std::vector<Benchmark>* to);
void AddStreamBenchmarks(std::vector<Benchmark>* to);
void AddDenseBenchmarks(std::vector<Benchmark>* to);
void AddSparseBenchmarks(std::vector<Benchmark>* to);
void AddModelLoadBenchmarks(std::vector<Benchmark>* to);
void AddReaderBenchmarks(std::vector<Benchmark>* to);
void AddDedupBenchmarks(std::vector<Benchmark>* to);
void AddTrainStepBenchmarks(std::vector<Benchmark>* to);
void AddGpuTrainStepBenchmarks(std::vector<Benchmark>* to);
void AddTrainBenchmarks(std::vector<Benchmark>* to);
void AddSchedulerBenchmarks(std::vector<Benchmark>* to);

// Two lines that say what the figures were measured on; warns when asserts are compiled in.
std::string DescribeMachine(const Settings& settings);
std::string TableHeader();
std::string TableLine(const Row& row);
std::string ToJson(const std::vector<Row>& rows);

// Seconds since an arbitrary start.
double Now();
// Seconds of processor time of the calling thread.
double ThreadNow();

}  // namespace sluice::bench

// sluice-bench: measures Sluice against the limits of this machine.
#include <gflags/gflags.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <string>

#include "bench/pserver_process.h"
#include "bench/suite.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon_usage.h"
#include "common/daemon/process_info.h"
#include "common/transport/grpc_transport.h"

DEFINE_string(filter, "", "run only the rows whose name matches this regular expression");
DEFINE_string(json, "", "also write the rows to this file");
DEFINE_bool(quick, false,
            "small sizes and few repetitions: shows that everything runs, not how fast");

DEFINE_bool(in_turns, false,
            "one repetition of each row, then the next of each: for rows to be compared with each "
            "other (all rows are prepared at the same time)");
DEFINE_int32(repetitions, 0, "repetitions of figure and limit; 0: 11, or 3 with --quick");
DEFINE_string(train_data, "",
              "Criteo TSV files (absolute glob) for the train rows, instead of generated ones");
DEFINE_bool(serve, false, "run the pserver of a benchmark (used by sluice-bench itself)");
DEFINE_string(tls_cert, "", "of the benchmark's pserver (used by sluice-bench itself)");
DEFINE_string(tls_key, "", "see --tls_cert");
DEFINE_string(tls_ca, "", "see --tls_cert");
DEFINE_int32(pserver_threads, 2, "threads of the benchmark's pserver");

namespace sluice::bench {
namespace {

void Print(const Row& row) {
  std::printf("%s", TableLine(row).c_str());
  std::fflush(stdout);
}

// Measures the rows and prints a line for each.
absl::StatusOr<std::vector<Row>> Measure(const std::vector<const Benchmark*>& benchmarks,
                                         const Settings& settings) {
  std::vector<Row> rows;
  if (FLAGS_in_turns) {
    SLUICE_ASSIGN_OR_RETURN(rows, RunInTurns(benchmarks, settings));
    for (const Row& row : rows) Print(row);
    return rows;
  }
  for (const Benchmark* benchmark : benchmarks) {
    SLUICE_ASSIGN_OR_RETURN(Row row, Run(*benchmark, settings));
    Print(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Benchmark> AllBenchmarks() {
  std::vector<Benchmark> benchmarks;
  AddKernelBenchmarks(&benchmarks);
  AddRowStoreBenchmarks(&benchmarks);
  AddRowStoreGrowthBenchmarks(&benchmarks);
  AddRowSweepBenchmarks(&benchmarks);
  AddStreamBenchmarks(&benchmarks);
  AddDenseBenchmarks(&benchmarks);
  AddSparseBenchmarks(&benchmarks);
  AddModelLoadBenchmarks(&benchmarks);
  AddCheckpointBenchmarks(&benchmarks);
  AddReaderBenchmarks(&benchmarks);
  AddTrainStepBenchmarks(&benchmarks);
  AddGpuTrainStepBenchmarks(&benchmarks);
  AddDedupBenchmarks(&benchmarks);
  AddTrainBenchmarks(&benchmarks);
  AddTrainPairBenchmarks(&benchmarks);
  AddSchedulerBenchmarks(&benchmarks);
  AddCollectiveBenchmarks(&benchmarks);
  return benchmarks;
}

Settings SettingsOfFlags() {
  Settings settings;
  settings.quick = FLAGS_quick;
  if (settings.quick) settings.repetitions = 3;
  settings.train_data = FLAGS_train_data;
  settings.malloc = MallocSettings();
  if (FLAGS_repetitions > 0) settings.repetitions = FLAGS_repetitions;
  return settings;
}

int Main() {
  std::regex filter;
  try {
    filter = std::regex(FLAGS_filter);
  } catch (const std::regex_error& error) {
    std::fprintf(stderr, "--filter=%s is not a regular expression: %s\n", FLAGS_filter.c_str(),
                 error.what());
    return 2;
  }
  const Settings settings = SettingsOfFlags();
  const std::vector<Benchmark> benchmarks = AllBenchmarks();
  std::printf("%s\n%s", DescribeMachine(settings).c_str(), TableHeader().c_str());
  std::vector<const Benchmark*> fit;
  int skipped = 0;
  for (const Benchmark& benchmark : benchmarks) {
    if (!std::regex_search(benchmark.name, filter)) continue;
    const std::string unfit = benchmark.unfit ? benchmark.unfit() : "";
    if (unfit.empty()) {
      fit.push_back(&benchmark);
    } else {
      std::printf("%s  skipped: %s\n", benchmark.name.c_str(), unfit.c_str());
      ++skipped;
    }
  }
  const absl::StatusOr<std::vector<Row>> rows = Measure(fit, settings);
  if (!rows.ok()) {
    std::fprintf(stderr, "%s\n", std::string(rows.status().message()).c_str());
    return 1;
  }
  if (rows->empty() && skipped == 0) {
    std::fprintf(stderr, "no row matches --filter=%s; the rows are\n", FLAGS_filter.c_str());
    for (const Benchmark& benchmark : benchmarks)
      std::fprintf(stderr, "  %s\n", benchmark.name.c_str());
    return 2;
  }
  if (FLAGS_json.empty()) return 0;
  std::ofstream file(FLAGS_json);
  file << ToJson(*rows);
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "cannot write --json=%s\n", FLAGS_json.c_str());
  return 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  constexpr char kUsage[] =
      "measures Sluice against the limits of this machine\n"
      "  sluice-bench --filter=kernel/ --json=rows.json";
  gflags::SetUsageMessage(kUsage);
  gflags::SetVersionString(sluice::SluiceVersion());
  const auto help = sluice::CheckDaemonFlags(argc, argv);
  if (!help.ok()) {
    std::fprintf(stderr, "sluice-bench: %s\n", std::string(help.status().message()).c_str());
    return 2;
  }
  if (*help) {
    std::printf("%s", sluice::DaemonHelp(argv[0], kUsage).c_str());
    return 0;
  }
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  if (argc > 1) {
    std::fprintf(stderr, "unknown argument \"%s\"; see --help\n", argv[1]);
    return 2;
  }
  sluice::QuietGrpc();
  sluice::PrepareDataPlane();
  if (!FLAGS_serve) return sluice::bench::Main();
  return sluice::bench::ServePserver(FLAGS_pserver_threads,
                                     {FLAGS_tls_cert, FLAGS_tls_key, FLAGS_tls_ca});
}

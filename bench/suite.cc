#include "bench/suite.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (absl::StartsWith(line, "model name")) {
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    }
  }
  return "unknown CPU";
}

// Runs the repetitions of one row, one at a time.
class Measurement {
 public:
  // Prepares, and measures once to warm up.
  static absl::StatusOr<Measurement> Start(const Benchmark& benchmark, const Settings& settings);
  bool done() const { return static_cast<int>(values_.size()) == row_.repetitions; }
  absl::Status Repeat();
  // REQUIRES: done().
  Row Result() const;

 private:
  Measurement(const Benchmark& benchmark, std::function<Sample()> measure, int repetitions);
  Row row_;
  std::function<Sample()> measure_;
  std::vector<double> values_, limits_;
};

Measurement::Measurement(const Benchmark& benchmark, std::function<Sample()> measure,
                         int repetitions)
    : measure_(std::move(measure)) {
  row_.name = benchmark.name;
  row_.unit = benchmark.unit;
  row_.limit_name = benchmark.limit_name;
  row_.repetitions = repetitions;
}

absl::StatusOr<Measurement> Measurement::Start(const Benchmark& benchmark,
                                               const Settings& settings) {
  absl::StatusOr<std::function<Sample()>> measure = benchmark.prepare(settings);
  if (!measure.ok()) {
    return absl::Status(measure.status().code(),
                        absl::StrCat(benchmark.name, ": ", measure.status().message()));
  }
  int repetitions = settings.repetitions;
  if (benchmark.few_repetitions > 0) {
    repetitions = settings.quick ? 1 : std::min(repetitions, benchmark.few_repetitions);
  } else {
    (*measure)();
  }
  return Measurement(benchmark, *std::move(measure), repetitions);
}

absl::Status Measurement::Repeat() {
  const Sample sample = measure_();
  if (!(sample.value > 0)) {
    return absl::InternalError(absl::StrCat(row_.name, ": the measurement failed"));
  }
  values_.push_back(sample.value);
  limits_.push_back(sample.limit);
  return absl::OkStatus();
}

Row Measurement::Result() const {
  Row row = row_;
  row.value = Median(values_);
  row.limit = Median(limits_);
  row.ratio = row.value / row.limit;
  row.min = *std::min_element(values_.begin(), values_.end());
  row.max = *std::max_element(values_.begin(), values_.end());
  return row;
}

}  // namespace

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ThreadNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

absl::StatusOr<std::vector<Row>> RunInTurns(const std::vector<const Benchmark*>& benchmarks,
                                            const Settings& settings) {
  std::vector<Measurement> measurements;
  for (const Benchmark* benchmark : benchmarks) {
    SLUICE_ASSIGN_OR_RETURN(Measurement measurement, Measurement::Start(*benchmark, settings));
    measurements.push_back(std::move(measurement));
  }
  for (bool done = false; !done;) {
    done = true;
    for (Measurement& measurement : measurements) {
      if (measurement.done()) continue;
      SLUICE_RETURN_IF_ERROR(measurement.Repeat());
      done = false;
    }
  }
  std::vector<Row> rows;
  for (const Measurement& measurement : measurements) rows.push_back(measurement.Result());
  return rows;
}

absl::StatusOr<Row> Run(const Benchmark& benchmark, const Settings& settings) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<Row> rows, RunInTurns({&benchmark}, settings));
  return rows.front();
}

std::string DescribeMachine(const Settings& settings) {
  std::string text = absl::StrCat(
      CpuName(), ", ", std::thread::hardware_concurrency(), " CPUs; build type ", SLUICE_BUILD_TYPE,
      "; malloc: ", settings.malloc, "; median of ", settings.repetitions, " repetitions\n");
#ifndef NDEBUG
  absl::StrAppend(&text,
                  "WARNING: asserts are on: do not compare with figures of a release build\n");
#endif
  if (settings.quick)
    absl::StrAppend(&text, "WARNING: --quick: figures are too rough to compare\n");
  return text;
}

std::string TableHeader() {
  return absl::StrFormat("%-31s %10s %-5s %10s %7s %10s %10s  %s\n", "name", "value", "unit",
                         "limit", "ratio", "min", "max", "limit is");
}

std::string TableLine(const Row& row) {
  return absl::StrFormat("%-31s %10.3f %-5s %10.3f %7.3f %10.3f %10.3f  %s\n", row.name, row.value,
                         row.unit, row.limit, row.ratio, row.min, row.max, row.limit_name);
}

std::string ToJson(const std::vector<Row>& rows) {
  // Names and units are our own constants, so nothing needs escaping.
  return absl::StrCat(
      "[\n",
      absl::StrJoin(
          rows, ",\n",
          [](std::string* out, const Row& row) {
            absl::StrAppendFormat(
                out,
                "  {\"name\": \"%s\", \"value\": %.9g, \"unit\": \"%s\", \"limit\": %.9g, "
                "\"limit_name\": \"%s\", \"ratio\": %.6g, \"repetitions\": %d, \"min\": %.9g, "
                "\"max\": %.9g}",
                row.name, row.value, row.unit, row.limit, row.limit_name, row.ratio,
                row.repetitions, row.min, row.max);
          }),
      "\n]\n");
}

}  // namespace sluice::bench

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

}  // namespace

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ThreadNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

absl::StatusOr<Row> Run(const Benchmark& benchmark, const Settings& settings) {
  absl::StatusOr<std::function<Sample()>> measure = benchmark.prepare(settings);
  if (!measure.ok()) return measure.status();
  int repetitions = settings.repetitions;
  if (benchmark.few_repetitions > 0) {
    repetitions = settings.quick ? 1 : std::min(repetitions, benchmark.few_repetitions);
  } else {
    (*measure)();
  }
  std::vector<double> values, limits;
  for (int i = 0; i < repetitions; ++i) {
    const Sample sample = (*measure)();
    if (!(sample.value > 0)) return absl::InternalError("the measurement failed");
    values.push_back(sample.value);
    limits.push_back(sample.limit);
  }
  Row row;
  row.name = benchmark.name;
  row.unit = benchmark.unit;
  row.limit_name = benchmark.limit_name;
  row.value = Median(values);
  row.limit = Median(limits);
  row.ratio = row.value / row.limit;
  row.repetitions = repetitions;
  row.min = *std::min_element(values.begin(), values.end());
  row.max = *std::max_element(values.begin(), values.end());
  return row;
}

std::string DescribeMachine(const Settings& settings) {
  std::string text =
      absl::StrCat(CpuName(), ", ", std::thread::hardware_concurrency(), " CPUs; build type ",
                   SLUICE_BUILD_TYPE, "; median of ", settings.repetitions, " repetitions\n");
#ifndef NDEBUG
  absl::StrAppend(&text, "WARNING: asserts are on: these are not the figures of a release build\n");
#endif
  if (settings.quick) absl::StrAppend(&text, "WARNING: --quick: too short to compare\n");
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
  // Names and units are our own constants: nothing in them needs escaping.
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

// row_store/growth/dim8_adagrad: the longest pause, in milliseconds, while one row store grows to
// 50 million rows. row_store/resident/dim8_adagrad: the memory that the store then keeps, in GiB;
// dim16_adam: the same for 10 million rows of 16 values with Adam's state.
//
// A pause is the processor time of 64 successive insertions: it includes pages, blocks and the
// index's growth, but not the time in which the thread did not run. Its limit is the goal, 5 ms.
// The limit of the memory is the payload: key, weights and state of every row.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "bench/suite.h"
#include "common/base/hash.h"
#include "server/shards/row_store.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kGrowthDim = 8, kStateFloats = 8;
constexpr double kMostPauseMs = 5, kGiB = 1 << 30;
constexpr size_t kInsertions = 64;

size_t RowsOf(const Settings& settings) { return settings.quick ? 100000 : 50000000; }

double ResidentBytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Sample LongestPause(size_t rows) {
  RowStore store(kGrowthDim, kStateFloats, ReadyPages::OfProcess());
  double longest = 0;
  bool created;
  for (size_t i = 0; i < rows;) {
    const double start = ThreadNow();
    for (size_t end = std::min(rows, i + kInsertions); i < end; ++i) {
      store.FindOrInsert(MixHash(i + 1), &created);
    }
    longest = std::max(longest, ThreadNow() - start);
  }
  return {longest * 1e3, kMostPauseMs};
}

Sample Resident(size_t rows, uint32_t dim, uint32_t state_floats) {
  const double before = ResidentBytes();
  RowStore store(dim, state_floats, ReadyPages::OfProcess());
  bool created;
  for (size_t i = 0; i < rows; ++i) {
    float* const weights = store.weights(store.FindOrInsert(MixHash(i + 1), &created));
    std::fill_n(weights, dim + state_floats, 1.0f);
  }
  const double payload = 8 + 4 * (dim + state_floats);
  return {(ResidentBytes() - before) / kGiB, payload * static_cast<double>(rows) / kGiB};
}

}  // namespace

void AddRowStoreGrowthBenchmarks(std::vector<Benchmark>* to) {
  const auto add = [to](const char* name, const char* unit, const char* limit,
                        Sample (*measure)(size_t)) {
    Benchmark benchmark;
    benchmark.name = name;
    benchmark.unit = unit;
    benchmark.limit_name = limit;
    benchmark.few_repetitions = 5;
    benchmark.prepare =
        [measure](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
      return std::function<Sample()>([measure, rows = RowsOf(settings)] { return measure(rows); });
    };
    to->push_back(std::move(benchmark));
  };
  add("row_store/growth/dim8_adagrad", "ms", "the goal for the longest pause, 50 million rows",
      LongestPause);
  add("row_store/resident/dim8_adagrad", "GiB", "payload of 50 million rows",
      [](size_t rows) { return Resident(rows, kGrowthDim, kStateFloats); });
  add("row_store/resident/dim16_adam", "GiB", "payload of 10 million rows",
      [](size_t rows) { return Resident(rows / 5, 16, 32); });
}

}  // namespace sluice::bench

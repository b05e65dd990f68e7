// row_sweep/{longest,p999}_pull/dim16: how long a pull of 2,048 rows takes, in milliseconds, from
// one shard of 10 million rows that have all expired, while updates sweep them. The limit is the
// same in a table without expiry.
// row_evict/longest_pull/dim16: the same from a shard at its limit of 400,000 rows, while updates
// evict. The limit is the same in a table without a limit.
//
// A pull comes at the worst moment: it waits for a whole update of 2,048 keys, 256 of them new.
// Both are measured as processor time of one thread, so time in which the thread did not run does
// not count.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/suite.h"
#include "common/base/hash.h"
#include "server/shards/shard.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kSweptDim = 16;
constexpr size_t kLoaded = 16 << 10;  // keys of a push that loads rows
constexpr size_t kPulled = 2048, kNewKeys = 256;

absl::StatusOr<std::unique_ptr<Shard>> ShardWith(TableConfig config) {
  config.set_name("sparse");
  config.set_kind(TableConfig::SPARSE);
  config.set_num_shards(1);
  ColumnGroup* const column = config.add_columns();
  column->set_name("w");
  column->set_dim(kSweptDim);
  column->mutable_optimizer()->set_learning_rate(1e-3);
  column->mutable_optimizer()->mutable_adagrad();
  auto layout = TableLayout::Create(0, config, /*seed=*/1);
  if (!layout.ok()) return layout.status();
  return MakeSparseShard(*std::move(layout), 0, UpdatePolicy());
}

class SweepWork {
 public:
  // A row that was updated more than `after_steps` steps ago, which are all but those that Turn
  // updates, has expired afterwards if the table says so.
  SweepWork(std::unique_ptr<Shard> shard, size_t rows, uint64_t after_steps)
      : shard_(std::move(shard)), next_(rows), pulled_(kPulled * kSweptDim) {
    const auto push_range = [this](uint64_t begin, uint64_t end) {
      std::vector<uint64_t> keys;
      for (uint64_t i = begin; i < end; ++i) keys.push_back(MixHash(i + 1));
      Push(keys);
    };
    for (size_t i = 0; i < rows; i += kLoaded) push_range(i, std::min(rows, i + kLoaded));
    for (uint64_t step = 0; step <= after_steps; ++step) push_range(0, kPulled);
    for (uint64_t i = 0; i < kPulled; ++i) hot_.push_back(MixHash(i + 1));
  }

  // Seconds of an update and the pull that waited for it.
  double Turn() {
    std::vector<uint64_t> keys(hot_.begin() + kNewKeys, hot_.end());
    for (size_t i = 0; i < kNewKeys; ++i) keys.push_back(MixHash(++next_));
    const double start = ThreadNow();
    Push(keys);
    shard_->Read(hot_.data(), hot_.size(), reinterpret_cast<uint8_t*>(pulled_.data()));
    return ThreadNow() - start;
  }

  RowTurnover turnover() { return shard_->turnover(); }

 private:
  void Push(const std::vector<uint64_t>& keys) {
    part_.rows = static_cast<uint32_t>(keys.size());
    part_.keys = keys;
    part_.values.assign(keys.size() * kSweptDim, 1e-3f);
    (void)shard_->Apply({0, 1, ++sequence_, 1.0}, &part_);
  }

  const std::unique_ptr<Shard> shard_;
  uint64_t next_;  // the key after those in use
  std::vector<uint64_t> hot_;
  std::vector<float> pulled_;
  PushPart part_;
  uint64_t sequence_ = 0;
};

// The share `quantile` of the turns took at most so many milliseconds.
double Quantile(std::vector<double> seconds, double quantile) {
  const auto at =
      seconds.begin() + static_cast<size_t>(quantile * static_cast<double>(seconds.size() - 1));
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at * 1e3;
}

// Returns 0 for a sweep that freed nothing: the row then fails.
Sample PullsWhileSwept(size_t rows, double quantile) {
  const uint64_t after_steps = rows / kLoaded + 100;
  // Turns in which the sweep passes about all rows.
  const size_t turns = rows / (16 * kNewKeys + kPulled / 8);
  Sample sample;
  for (const bool expires : {false, true}) {
    TableConfig config;
    if (expires) config.mutable_expire()->set_after_steps(after_steps);
    auto shard = ShardWith(config);
    if (!shard.ok()) return {};
    SweepWork work(*std::move(shard), rows, after_steps);
    std::vector<double> seconds;
    for (size_t i = 0; i < turns; ++i) seconds.push_back(work.Turn());
    if (expires && work.turnover().expired() < rows / 2) return {};
    (expires ? sample.value : sample.limit) = Quantile(std::move(seconds), quantile);
  }
  return sample;
}

// Returns 0 if few updates evicted: the row then fails.
Sample PullWhileEvicted(size_t rows) {
  const size_t turns = rows / kNewKeys;  // an update evicts 5 % of the rows
  Sample sample;
  for (const bool evicts : {false, true}) {
    TableConfig config;
    if (evicts) {
      config.set_max_rows(rows);
      config.mutable_evict();
    }
    auto shard = ShardWith(config);
    if (!shard.ok()) return {};
    SweepWork work(*std::move(shard), rows, 0);
    std::vector<double> seconds;
    for (size_t i = 0; i < turns; ++i) seconds.push_back(work.Turn());
    if (evicts && work.turnover().evicted() < rows / 2) return {};
    (evicts ? sample.value : sample.limit) = Quantile(std::move(seconds), 1);
  }
  return sample;
}

}  // namespace

void AddRowSweepBenchmarks(std::vector<Benchmark>* to) {
  for (const auto& [name, quantile] : {std::pair("longest", 1.0), std::pair("p999", 0.999)}) {
    Benchmark benchmark;
    benchmark.name = std::string("row_sweep/") + name + "_pull/dim16";
    benchmark.unit = "ms";
    benchmark.limit_name = "the same pull from a table without expiry";
    benchmark.few_repetitions = 3;
    benchmark.prepare =
        [quantile = quantile](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
      return std::function<Sample()>([rows = settings.quick ? size_t{200000} : size_t{10000000},
                                      quantile] { return PullsWhileSwept(rows, quantile); });
    };
    to->push_back(std::move(benchmark));
  }
  Benchmark evict;
  evict.name = "row_evict/longest_pull/dim16";
  evict.unit = "ms";
  evict.limit_name = "the same pull from a table without a limit";
  evict.few_repetitions = 3;
  evict.prepare = [](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    return std::function<Sample()>([rows = settings.quick ? size_t{20000} : size_t{400000}] {
      return PullWhileEvicted(rows);
    });
  };
  to->push_back(std::move(evict));
}

}  // namespace sluice::bench

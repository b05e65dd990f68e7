// row_store/{pull,push_RULE}/dimD: rows per second of one sparse shard in this process, one thread,
// uniform keys. This is what a pserver does between a decoded frame and an encoded reply.
//
// The limit is a bare absl::flat_hash_map from key to an array of floats with the same keys: each
// key is looked up, and its values are copied out or updated in a plain loop.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/base/hash.h"
#include "server/shards/shard.h"

namespace sluice::bench {
namespace {

constexpr size_t kRowBatch = 16 << 10;
constexpr float kRowRate = 1e-3f;
enum class Work { kPull, kSgd, kAdagrad };

uint64_t KeyOf(uint64_t i) { return MixHash(i + 1); }

absl::StatusOr<std::unique_ptr<Shard>> OneShard(uint32_t dim, Work work) {
  TableConfig config;
  config.set_name("sparse");
  config.set_kind(TableConfig::SPARSE);
  config.set_num_shards(1);
  ColumnGroup* column = config.add_columns();
  column->set_name("w");
  column->set_dim(dim);
  column->mutable_initializer()->set_constant(0.5f);
  column->mutable_optimizer()->set_learning_rate(kRowRate);
  if (work == Work::kAdagrad) {
    column->mutable_optimizer()->mutable_adagrad();
  } else {
    column->mutable_optimizer()->mutable_sgd();
  }
  auto layout = TableLayout::Create(0, config, /*seed=*/1);
  if (!layout.ok()) return layout.status();
  return MakeSparseShard(*std::move(layout), 0, UpdatePolicy());
}

template <uint32_t kDim, Work kWork>
class RowStoreWork {
 public:
  RowStoreWork(std::unique_ptr<Shard> shard, size_t rows, size_t batches)
      : shard_(std::move(shard)), gradients_(kRowBatch * kDim, 1e-3f), pulled_(kRowBatch * kDim) {
    map_.reserve(rows);
    std::vector<uint64_t> keys;
    for (size_t i = 0; i < rows; ++i) {
      keys.push_back(KeyOf(i));
      map_[keys.back()].fill(0.5f);
      if (keys.size() < kRowBatch && i + 1 < rows) continue;
      Push(keys);
      keys.clear();
    }
    std::mt19937_64 random(1);
    batches_.resize(batches, std::vector<uint64_t>(kRowBatch));
    for (auto& batch : batches_) {
      for (uint64_t& key : batch) key = KeyOf(random() % rows);
    }
  }

  // Returns millions of rows per second.
  Sample Measure() {
    const double rows = static_cast<double>(batches_.size() * kRowBatch) / 1e6;
    Sample sample;
    double start = Now();
    for (const auto& batch : batches_) OnMap(batch);
    sample.limit = rows / (Now() - start);
    start = Now();
    for (const auto& batch : batches_) {
      if (kWork == Work::kPull) {
        shard_->Read(batch.data(), batch.size(), reinterpret_cast<uint8_t*>(pulled_.data()));
      } else {
        Push(batch);
      }
    }
    sample.value = rows / (Now() - start);
    return sample;
  }

 private:
  static constexpr size_t kFloats = kWork == Work::kAdagrad ? 2 * kDim : kDim;

  // Includes the copies of keys and gradients that decoding a frame makes.
  void Push(const std::vector<uint64_t>& keys) {
    part_.rows = static_cast<uint32_t>(keys.size());
    part_.keys.assign(keys.begin(), keys.end());
    part_.values.assign(gradients_.begin(), gradients_.begin() + keys.size() * kDim);
    (void)shard_->Apply({0, 1, ++sequence_, 1.0}, &part_);
  }

  void OnMap(const std::vector<uint64_t>& keys) {
    for (size_t i = 0; i < keys.size(); ++i) {
      float* const row = map_.find(keys[i])->second.data();
      const float* const g = &gradients_[i * kDim];
      if (kWork == Work::kPull) {
        std::copy_n(row, kDim, &pulled_[i * kDim]);
      } else if (kWork == Work::kSgd) {
        for (uint32_t d = 0; d < kDim; ++d) row[d] -= kRowRate * g[d];
      } else {
        float* const squares = row + kDim;
        for (uint32_t d = 0; d < kDim; ++d) {
          squares[d] += g[d] * g[d];
          row[d] -= kRowRate * g[d] / (std::sqrt(squares[d]) + 1e-10f);
        }
      }
    }
  }

  const std::unique_ptr<Shard> shard_;
  const std::vector<float> gradients_;
  std::vector<float> pulled_;
  absl::flat_hash_map<uint64_t, std::array<float, kFloats>> map_;
  std::vector<std::vector<uint64_t>> batches_;
  PushPart part_;
  uint64_t sequence_ = 0;
};

template <uint32_t kDim, Work kWork>
Benchmark RowStoreBenchmark(const char* work, size_t rows) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("row_store/", work, "/dim", kDim);
  benchmark.unit = "M/s";
  benchmark.limit_name = "a bare absl::flat_hash_map table";
  benchmark.prepare = [rows](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    auto shard = OneShard(kDim, kWork);
    if (!shard.ok()) return shard.status();
    auto bench = std::make_shared<RowStoreWork<kDim, kWork>>(
        *std::move(shard), settings.quick ? 20000 : rows, settings.quick ? 2 : 100);
    return std::function<Sample()>([bench] { return bench->Measure(); });
  };
  return benchmark;
}

}  // namespace

void AddRowStoreBenchmarks(std::vector<Benchmark>* to) {
  constexpr size_t kMillion = 1000000;
  to->push_back(RowStoreBenchmark<16, Work::kPull>("pull", 10 * kMillion));
  to->push_back(RowStoreBenchmark<10, Work::kPull>("pull", kMillion));
  to->push_back(RowStoreBenchmark<10, Work::kSgd>("push_sgd", kMillion));
  to->push_back(RowStoreBenchmark<16, Work::kAdagrad>("push_adagrad", 10 * kMillion));
}

}  // namespace sluice::bench

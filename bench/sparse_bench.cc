// {sparse_pull,sparse_push}/dimD/{uniform,zipf}: unique rows per second between a worker's
// ParameterClient in this process and its pserver in another.
//
// uniform: all keys of a filled table are equally likely. zipf: keys are drawn with frequency
// 1 / rank, without duplicates. The limit is the same work on a row store in this process, one
// thread. tls/...: the same over mutual TLS, whose limit is the row without TLS. .../shm: the same
// through shared memory, whose limit is the row over gRPC. .../shm/in_flight1: one batch at a time,
// whose limit is the usual number in flight.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/bench_workers.h"
#include "bench/suite.h"
#include "client/key_set.h"
#include "common/base/hash.h"
#include "server/shards/row_store.h"

namespace sluice::bench {
namespace {

constexpr int kInFlight = 4;
constexpr size_t kBatches = 32;  // different batches, used in turn
constexpr float kRate = 1e-3f;

using Between = BenchWorkers::Between;

struct SparseTrafficRow {
  bool push;
  uint32_t dim;
  bool zipf;
  bool adagrad;
  size_t rows;   // in the table; zipf: ranks
  size_t batch;  // unique keys
  uint32_t workers = 1;
  bool named_batch = false;
  Between between = Between::kGrpc;
  int in_flight = kInFlight;
  bool one_at_a_time() const { return in_flight == 1; }
};

std::string SparseTrafficName(const SparseTrafficRow& row) {
  return absl::StrCat(
      row.between == Between::kTls ? "tls/" : "",
      row.workers > 1 ? absl::StrCat("workers", row.workers, "/") : "",
      row.push ? "sparse_push/dim" : "sparse_pull/dim", row.dim, row.zipf ? "/zipf" : "/uniform",
      row.named_batch ? absl::StrCat("/batch", row.batch >> 10, "k") : "",
      row.between == Between::kShm ? "/shm" : "", row.one_at_a_time() ? "/in_flight1" : "");
}

uint64_t KeyOfRank(uint64_t rank) { return MixHash(rank + 1); }

OptimizerConfig OptimizerOf(const SparseTrafficRow& row) {
  OptimizerConfig optimizer;
  if (row.adagrad) {
    optimizer.mutable_adagrad();
  } else {
    optimizer.mutable_sgd();
  }
  optimizer.set_learning_rate(kRate);
  return optimizer;
}

TableConfig SparseTable(const SparseTrafficRow& row) {
  TableConfig table;
  table.set_name("sparse");
  table.set_kind(TableConfig::SPARSE);
  table.set_num_shards(16);
  ColumnGroup* column = table.add_columns();
  column->set_name("w");
  column->set_dim(row.dim);
  column->mutable_initializer()->set_constant(0.5f);
  *column->mutable_optimizer() = OptimizerOf(row);
  return table;
}

// Returns the distinct keys of one batch.
std::vector<uint64_t> DrawBatch(const SparseTrafficRow& row, std::mt19937_64* random) {
  std::unordered_set<uint64_t> seen;
  std::vector<uint64_t> keys;
  std::uniform_real_distribution<double> unit(0, 1);
  while (keys.size() < row.batch) {
    // Inverse of the integral of 1 / x over [1, rows + 1).
    const double u = unit(*random), n = static_cast<double>(row.rows);
    const uint64_t rank = static_cast<uint64_t>(row.zipf ? std::pow(n + 1, u) - 1 : n * u);
    if (seen.insert(rank).second) keys.push_back(KeyOfRank(std::min(rank, row.rows - 1)));
  }
  return keys;
}

class SparseTraffic {
 public:
  static absl::StatusOr<std::shared_ptr<SparseTraffic>> Start(const SparseTrafficRow& row) {
    auto rule = UpdateRule::Create(WithDefaults(OptimizerOf(row)));
    if (!rule.ok()) return rule.status();
    auto workers = BenchWorkers::Start({SparseTable(row)}, row.workers, row.between);
    if (!workers.ok()) return workers.status();
    std::shared_ptr<SparseTraffic> traffic(
        new SparseTraffic(row, *std::move(rule), *std::move(workers)));
    traffic->Fill();
    return traffic;
  }

  // Returns the seconds for `batches` of each of the first `workers`.
  double Run(uint32_t workers, int batches, int in_flight) {
    return workers_->Run(workers, [this, batches, in_flight](uint32_t w) {
      return row_.push ? Push(w, batches, in_flight) : Pull(w, batches, in_flight);
    });
  }

  // The same for the table in this process.
  double RunHere(int batches) {
    const double start = Now();
    for (int b = 0; b < batches; ++b) {
      const std::vector<uint64_t>& keys = batches_[b % kBatches]->keys;
      const size_t floats = row_.dim * (row_.push ? 1 + rule_->state_floats() : 1);
      store_.VisitRows(keys.data(), keys.size(), floats,
                       [this](size_t i, const RowStore::Row& row) { Touch(row, i); });
    }
    return Now() - start;
  }

 private:
  SparseTraffic(const SparseTrafficRow& row, std::unique_ptr<const UpdateRule> rule,
                std::unique_ptr<BenchWorkers> workers)
      : row_(row),
        rule_(std::move(rule)),
        workers_(std::move(workers)),
        store_(row.dim, rule_->state_floats() * row.dim, ReadyPages::OfProcess()) {
    std::mt19937_64 random(1);
    for (size_t b = 0; b < kBatches; ++b) batches_.push_back(Group(DrawBatch(row_, &random)));
    gradients_ =
        std::make_shared<std::vector<float>>(std::max(row_.batch, kFillBatch) * row_.dim, 1e-3f);
    pulled_.resize(row_.workers, std::vector<std::vector<float>>(
                                     kInFlight, std::vector<float>(row_.batch * row_.dim)));
  }

  static constexpr size_t kFillBatch = 64 << 10;

  std::shared_ptr<const KeySet> Group(const std::vector<uint64_t>& keys) {
    auto set = std::make_shared<KeySet>();
    index_.resize(keys.size());
    deduplicator_.Run(*workers_->client(0)->tables()[0], keys.data(), keys.size(), set.get(),
                      index_.data());
    return set;
  }

  // Creates every row, in this process and at the pserver.
  void Fill() {
    workers_->Run(1, [this](uint32_t) {
      absl::Status status;
      std::vector<uint64_t> keys;
      for (size_t rank = 0; rank < row_.rows && status.ok(); rank += kFillBatch) {
        keys.clear();
        for (size_t r = rank; r < std::min(rank + kFillBatch, row_.rows); ++r) {
          keys.push_back(KeyOfRank(r));
        }
        status = workers_->client(0)->WaitPushes(kInFlight - 1);
        status.Update(workers_->client(0)->StartPush(Gradients(Group(keys))));
      }
      status.Update(workers_->client(0)->WaitPushes(0));
      return status;
    });
    for (size_t rank = 0; rank < row_.rows; ++rank) {
      bool created;
      store_.FindOrInsert(KeyOfRank(rank), &created);
    }
  }

  void Touch(const RowStore::Row& row, size_t i) {
    float* const values = &pulled_[0][0][i * row_.dim];
    if (!row_.push) {
      std::copy_n(row.weights, row_.dim, values);
      return;
    }
    float* state[UpdateRule::kMaxState];
    for (int s = 0; s < rule_->state_floats(); ++s) state[s] = row.state + s * row_.dim;
    rule_->Apply(row.weights, state, gradients_->data() + i * row_.dim, row_.dim, row_.dim, kRate,
                 ++row.header->count);
  }

  PushRequest Gradients(std::shared_ptr<const KeySet> keys) const {
    PushRequest push;
    push.sparse.push_back({0, std::move(keys), gradients_->data()});
    push.owner = gradients_;
    push.weight = 1;
    return push;
  }

  absl::Status Push(uint32_t worker, int batches, int in_flight) {
    ParameterClient* const client = workers_->client(worker);
    absl::Status status;
    for (int b = 0; b < batches && status.ok(); ++b) {
      status = client->WaitPushes(in_flight - 1);
      status.Update(client->StartPush(Gradients(batches_[(b + 8 * worker) % kBatches])));
    }
    status.Update(client->WaitPushes(0));
    return status;
  }

  absl::Status Pull(uint32_t worker, int batches, int in_flight) {
    ParameterClient* const client = workers_->client(worker);
    ParameterClient::Ticket tickets[kInFlight];
    absl::Status status;
    for (int b = 0; b < batches + in_flight && status.ok(); ++b) {
      ParameterClient::Ticket& ticket = tickets[b % in_flight];
      if (b >= in_flight) status = client->WaitPull(ticket);
      if (b >= batches) continue;
      PullRequest pull;
      pull.sparse.push_back(
          {0, batches_[(b + 8 * worker) % kBatches], pulled_[worker][b % in_flight].data()});
      ticket = client->StartPull(std::move(pull));
    }
    return status;
  }

  const SparseTrafficRow row_;
  const std::unique_ptr<const UpdateRule> rule_;
  const std::unique_ptr<BenchWorkers> workers_;
  RowStore store_;
  KeyDeduplicator deduplicator_;
  std::vector<uint32_t> index_;
  std::vector<std::shared_ptr<const KeySet>> batches_;
  std::shared_ptr<std::vector<float>> gradients_;
  std::vector<std::vector<std::vector<float>>> pulled_;  // [worker][in flight][row, dim]
};

Benchmark SparseBenchmark(SparseTrafficRow row) {
  Benchmark benchmark;
  benchmark.name = SparseTrafficName(row);
  benchmark.unit = "M/s";
  benchmark.limit_name = row.one_at_a_time()            ? "four in flight"
                         : row.between == Between::kTls ? "the same without TLS"
                         : row.between == Between::kShm ? "the same over gRPC"
                         : row.workers > 1              ? "one worker"
                                                        : "row store in process, one thread";
  benchmark.prepare = [row](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SparseTrafficRow sized = row;
    if (settings.quick) {
      sized.rows = 20000;
      sized.batch = std::min<size_t>(row.batch, 2000);
    }
    auto traffic = SparseTraffic::Start(sized);
    if (!traffic.ok()) return traffic.status();
    std::shared_ptr<SparseTraffic> plain;
    if (row.between != Between::kGrpc && !row.one_at_a_time()) {
      sized.between = Between::kGrpc;
      auto started = SparseTraffic::Start(sized);
      if (!started.ok()) return started.status();
      plain = *std::move(started);
    }
    const size_t total = settings.quick ? 4 * sized.batch : 1500000;
    const int batches = static_cast<int>(std::max<size_t>(total / sized.batch, 8));
    const double rows = static_cast<double>(batches) * sized.batch / 1e6;
    return std::function<Sample()>([=, traffic = *std::move(traffic)] {
      Sample sample;
      const bool other = sized.workers > 1 || sized.one_at_a_time();
      sample.limit = rows / (plain != nullptr ? plain->Run(1, batches, kInFlight)
                             : other          ? traffic->Run(1, batches, kInFlight)
                                              : traffic->RunHere(batches));
      sample.value = sized.workers * rows / traffic->Run(sized.workers, batches, sized.in_flight);
      return sample;
    });
  };
  return benchmark;
}

}  // namespace

void AddSparseBenchmarks(std::vector<Benchmark>* to) {
  // The standard model's traffic: dim 10, zipf, 15 thousand unique keys a batch, SGD.
  constexpr size_t kZipfBatch = 15000, kSparseBatch = 16 << 10, kMillion = 1000000;
  for (const bool push : {false, true}) {
    for (const uint32_t dim : {8u, 10u, 16u, 64u}) {
      const bool adagrad = dim == 16;
      to->push_back(SparseBenchmark(
          {push, dim, false, adagrad, dim == 16 ? 10 * kMillion : kMillion, kSparseBatch}));
      to->push_back(SparseBenchmark({push, dim, true, adagrad, kMillion, kZipfBatch}));
    }
    for (const size_t batch : {1 << 10, 4 << 10, 64 << 10}) {
      to->push_back(SparseBenchmark({push, 16, false, true, kMillion, batch, 1, true}));
    }
    for (const uint32_t workers : {2, 4}) {
      to->push_back(SparseBenchmark({push, 10, true, false, kMillion, kZipfBatch, workers}));
    }
    for (const Between between : {Between::kTls, Between::kShm})
      to->push_back(
          SparseBenchmark({push, 16, false, true, kMillion, kSparseBatch, 1, false, between}));
    to->push_back(SparseBenchmark({push, 16, false, true, 10 * kMillion, kSparseBatch, 1, false,
                                   Between::kShm, /*in_flight=*/1}));
  }
}

}  // namespace sluice::bench

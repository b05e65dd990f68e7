// {dense_push,dense_pull,dense_push_pull}/SIZE and round_trip/4KiB: one dense table of that size,
// between a worker's ParameterClient in this process and its pserver in another.
//
// The limit is one TCP connection that carries messages of the same size, with one pass over the
// values at each end: the sender copies them into its buffer, and the receiver adds them to an
// array. tls/...: the same over mutual TLS, whose limit is the row without TLS. .../shm/...: the
// same through shared memory, whose limit is the row over gRPC; .../memcpy: its limit is one memcpy
// of the same bytes.
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/bench_workers.h"
#include "bench/suite.h"
#include "bench/tcp_loopback.h"

namespace sluice::bench {
namespace {

using Between = BenchWorkers::Between;
enum class Kind { kPush, kPull, kPushPull };

constexpr size_t kWord = 64;  // size of an acknowledgement or a pull request
constexpr uint32_t kMaxWorkers = 4;

TableConfig DenseTable(size_t bytes) {
  TableConfig table;
  table.set_name("dense");
  table.set_kind(TableConfig::DENSE);
  table.add_shape(bytes / sizeof(float));
  table.mutable_initializer()->set_constant(0);
  table.mutable_optimizer()->mutable_sgd();
  table.mutable_optimizer()->set_learning_rate(0.001);
  return table;
}

class DenseTraffic {
 public:
  static absl::StatusOr<std::shared_ptr<DenseTraffic>> Start(Kind kind, size_t bytes,
                                                             uint32_t workers, int in_flight,
                                                             Between between = Between::kGrpc) {
    auto group = BenchWorkers::Start({DenseTable(bytes)}, workers, between);
    if (!group.ok()) return group.status();
    return std::shared_ptr<DenseTraffic>(
        new DenseTraffic(kind, bytes, in_flight, *std::move(group)));
  }

  // Returns the seconds for `messages` of each of the first `workers`.
  double Run(uint32_t workers, int messages) {
    return workers_->Run(workers, [this, messages](uint32_t w) {
      if (kind_ == Kind::kPush) return Push(w, messages);
      return kind_ == Kind::kPull ? Pull(w, messages) : PushPull(w, messages);
    });
  }

 private:
  DenseTraffic(Kind kind, size_t bytes, int in_flight, std::unique_ptr<BenchWorkers> workers)
      : kind_(kind), in_flight_(in_flight), workers_(std::move(workers)) {
    const size_t elements = bytes / sizeof(float);
    gradient_ = std::make_shared<std::vector<float>>(elements, 1e-3f);
    // Each pull in flight fills its own array.
    pulled_.resize(workers_->size(),
                   std::vector<std::vector<float>>(in_flight, std::vector<float>(elements)));
  }

  PushRequest Gradient() const {
    PushRequest push;
    push.dense.push_back({0, gradient_->data()});
    push.owner = gradient_;
    push.weight = 1;
    return push;
  }
  PullRequest Into(uint32_t worker, int i) {
    PullRequest pull;
    pull.dense.push_back({0, pulled_[worker][i % in_flight_].data()});
    return pull;
  }

  absl::Status Push(uint32_t worker, int messages) {
    ParameterClient* const client = workers_->client(worker);
    absl::Status status;
    for (int i = 0; i < messages && status.ok(); ++i) {
      status = client->WaitPushes(in_flight_ - 1);
      status.Update(client->StartPush(Gradient()));
    }
    status.Update(client->WaitPushes(0));
    return status;
  }

  absl::Status Pull(uint32_t worker, int messages) {
    ParameterClient* const client = workers_->client(worker);
    std::vector<ParameterClient::Ticket> tickets(in_flight_);
    absl::Status status;
    for (int i = 0; i < messages + in_flight_ && status.ok(); ++i) {
      ParameterClient::Ticket& ticket = tickets[i % in_flight_];
      if (i >= in_flight_) status = client->WaitPull(ticket);
      if (i < messages) ticket = client->StartPull(Into(worker, i));
    }
    return status;
  }

  absl::Status PushPull(uint32_t worker, int messages) {
    ParameterClient* const client = workers_->client(worker);
    absl::Status status;
    for (int i = 0; i < messages && status.ok(); ++i) {
      ParameterClient::Ticket ticket;
      PullRequest pull = Into(worker, 0);
      status = client->StartPush(Gradient(), &pull, &ticket);
      if (status.ok()) status = client->WaitPull(ticket);
    }
    status.Update(client->WaitPushes(0));
    return status;
  }

  const Kind kind_;
  const int in_flight_;
  const std::unique_ptr<BenchWorkers> workers_;
  std::shared_ptr<std::vector<float>> gradient_;
  std::vector<std::vector<std::vector<float>>> pulled_;  // [worker][in flight][element]
};

struct Row {
  Kind kind;
  size_t bytes;
  uint32_t workers = 1;
  bool round_trip = false;  // measured in us per message, not in GB/s
  Between between = Between::kGrpc;
  bool memcpy = false;  // the limit of a row through shared memory
};

std::string SizeName(size_t bytes) {
  return bytes >= 1 << 20 ? absl::StrCat(bytes >> 20, "MiB") : absl::StrCat(bytes >> 10, "KiB");
}

std::string RowName(const Row& row) {
  const char* const kind = row.round_trip            ? "round_trip/"
                           : row.kind == Kind::kPush ? "dense_push/"
                           : row.kind == Kind::kPull ? "dense_pull/"
                                                     : "dense_push_pull/";
  return absl::StrCat(row.between == Between::kTls ? "tls/" : "",
                      row.workers > 1 ? absl::StrCat("workers", row.workers, "/") : "", kind,
                      row.between == Between::kShm ? "shm/" : "", SizeName(row.bytes),
                      row.memcpy ? "/memcpy" : "");
}

std::string LimitName(const Row& row) {
  if (row.memcpy) return "one memcpy of the same bytes";
  if (row.between == Between::kShm) return "the same over gRPC";
  if (row.between == Between::kTls) return "the same without TLS";
  if (row.workers > 1) return "one worker";
  return row.round_trip ? "plain TCP, 4 KiB each way"
                        : "plain TCP, same size, one pass at each end";
}

// Returns the seconds in which one thread copies so many bytes `times` times.
double CopySeconds(const std::vector<char>& from, std::vector<char>* to, int times) {
  const double start = Now();
  for (int i = 0; i < times; ++i) std::memcpy(to->data(), from.data(), from.size());
  return Now() - start;
}

TcpLoopback::Shape TcpShape(const Row& row) {
  TcpLoopback::Shape shape;
  shape.message_bytes = row.kind == Kind::kPull ? kWord : row.bytes;
  shape.answer_bytes = row.kind == Kind::kPush ? kWord : row.bytes;
  shape.pass = !row.round_trip;
  return shape;
}

absl::StatusOr<std::function<Sample()>> Prepare(Row row, const Settings& settings) {
  if (settings.quick) row.bytes = std::min<size_t>(row.bytes, 2 << 20);
  const size_t total = settings.quick ? 2 * row.bytes : std::max(row.bytes * 2, size_t{256} << 20);
  const int messages = static_cast<int>(std::min<size_t>(total / row.bytes, 4000));
  // A stream may queue only so many bytes.
  const int in_flight = row.kind == Kind::kPushPull ? 1 : row.bytes <= 16 << 20 ? 4 : 2;
  auto traffic = DenseTraffic::Start(row.kind, row.bytes, row.workers, in_flight, row.between);
  if (!traffic.ok()) return traffic.status();
  std::shared_ptr<DenseTraffic> other = *traffic;  // whose figure is the limit
  std::shared_ptr<TcpLoopback> tcp;
  if (row.memcpy) {
    const auto from = std::make_shared<std::vector<char>>(row.bytes, 1);
    const auto to = std::make_shared<std::vector<char>>(row.bytes);
    const double gb = messages * static_cast<double>(row.bytes) / 1e9;
    return std::function<Sample()>([=, traffic = *std::move(traffic)] {
      Sample sample;
      sample.limit = gb / CopySeconds(*from, to.get(), messages);
      sample.value = gb / traffic->Run(1, messages);
      return sample;
    });
  }
  if (row.between != Between::kGrpc) {
    auto plain = DenseTraffic::Start(row.kind, row.bytes, row.workers, in_flight);
    if (!plain.ok()) return plain.status();
    other = *std::move(plain);
  } else if (row.workers == 1) {
    auto created = TcpLoopback::Create(TcpShape(row));
    if (!created.ok()) return created.status();
    tcp = *std::move(created);
  }
  const double bytes =
      static_cast<double>(messages) * row.bytes * (row.kind == Kind::kPushPull ? 2 : 1);
  const auto figure = [row, messages, bytes](double seconds, uint32_t workers) {
    return row.round_trip ? seconds / messages * 1e6 : workers * bytes / seconds / 1e9;
  };
  return std::function<Sample()>([=, traffic = *std::move(traffic)] {
    Sample sample;
    sample.limit = tcp != nullptr ? figure(tcp->Run(messages, in_flight), 1)
                                  : figure(other->Run(1, messages), 1);
    sample.value = figure(traffic->Run(row.workers, messages), row.workers);
    return sample;
  });
}

Benchmark DenseBenchmark(const Row& row) {
  Benchmark benchmark;
  benchmark.name = RowName(row);
  benchmark.unit = row.round_trip ? "us" : "GB/s";
  benchmark.limit_name = LimitName(row);
  benchmark.prepare = [row](const Settings& settings) { return Prepare(row, settings); };
  return benchmark;
}

}  // namespace

void AddDenseBenchmarks(std::vector<Benchmark>* to) {
  to->push_back(DenseBenchmark({Kind::kPushPull, 4 << 10, 1, true}));
  for (const Kind kind : {Kind::kPush, Kind::kPull, Kind::kPushPull}) {
    for (const size_t bytes :
         {4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}) {
      to->push_back(DenseBenchmark({kind, bytes}));
    }
  }
  for (uint32_t workers = 2; workers <= kMaxWorkers; workers *= 2) {
    for (const Kind kind : {Kind::kPush, Kind::kPull}) {
      to->push_back(DenseBenchmark({kind, 4 << 20, workers}));
    }
  }
  to->push_back(DenseBenchmark({Kind::kPushPull, 4 << 10, 1, true, Between::kTls}));
  for (const Kind kind : {Kind::kPush, Kind::kPull})
    to->push_back(DenseBenchmark({kind, 4 << 20, 1, false, Between::kTls}));
  to->push_back(DenseBenchmark({Kind::kPushPull, 4 << 10, 1, true, Between::kShm}));
  for (const Kind kind : {Kind::kPush, Kind::kPull}) {
    for (const size_t bytes : {4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20})
      to->push_back(DenseBenchmark({kind, bytes, 1, false, Between::kShm}));
    for (const size_t bytes : {4 << 20, 64 << 20})
      to->push_back(DenseBenchmark({kind, bytes, 1, false, Between::kShm, true}));
  }
}

}  // namespace sluice::bench

// collective/OPERATION/{shm,gloo}/SIZE/ranksN: the operations of a Collective between N threads of
// this process, each with a CPU of its own as far as there are enough.
//
// The limit of shm is memcpy, by as many threads, of the bytes that the operation must move through
// one memory. With n bytes and r ranks, each rank reads or writes
//
//   allreduce        (5 - 2 / r) n   bring 2 (r - 1) / r, reduce 1 + 2 / r, take 2 (r - 1) / r
//   reduce_scatter   (3 - 1 / r) n   bring 2 (r - 1) / r, reduce 1 + 1 / r
//   all_gather       2 n             bring 2 / r, take 2 (r - 1) / r
//   broadcast        2 n             bring or take 2
//
// A weighted mean moves as much as allreduce; in bfloat16 (3.5 - 1 / r) n, because half as much
// lies between the ranks.
//
// A repetition has a fixed number of operations, or as many as take about kMostSeconds: where other
// processes keep a rank from its CPU, each hand-over between ranks waits for the scheduler.
//
// The limit of gloo is one plain TCP connection over loopback that carries as many bytes as all
// ranks must send: 2 (r - 1) n for allreduce and a weighted mean, (r - 1) n for the others, half of
// it each way.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "bench/tcp_loopback.h"
#include "common/base/cpu_pin.h"
#include "common/base/status_macros.h"
#include "common/collective/make_collective.h"

namespace sluice::bench {
namespace {

// Runs `work` on a thread for each rank, pinned to the rank's CPU. Returns the seconds between the
// moment when all were ready and the end of the last.
double OnRanks(uint32_t ranks, const std::function<void(uint32_t)>& work) {
  std::atomic<uint32_t> ready{0};
  std::vector<double> begins(ranks), ends(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const CpuPin pin(static_cast<int>(rank), 1);
      ready.fetch_add(1);
      while (ready.load() < ranks) std::this_thread::yield();
      begins[rank] = Now();
      work(rank);
      ends[rank] = Now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(ends.begin(), ends.end()) -
         *std::min_element(begins.begin(), begins.end());
}

class Ranks {
 public:
  static absl::StatusOr<std::shared_ptr<Ranks>> Create(const std::string& engine, uint32_t ranks,
                                                       size_t n) {
    CollectiveOptions options;
    options.bind_address = "127.0.0.1";
    auto made = std::make_shared<Ranks>();
    made->arrays_.assign(ranks, std::vector<float>(n, 1.0f));
    made->copies_ = made->arrays_;
    std::vector<std::string> cards(ranks);
    std::vector<absl::Status> results(ranks);
    made->collectives_.resize(ranks);
    for (std::unique_ptr<Collective>& collective : made->collectives_) {
      SLUICE_ASSIGN_OR_RETURN(collective, MakeCollective(engine, options));
    }
    // Gloo's thread belongs to the CPU of its rank.
    OnRanks(ranks, [&](uint32_t r) {
      auto card = made->collectives_[r]->Listen(1, r, ranks);
      results[r] = card.status();
      if (card.ok()) cards[r] = *card;
    });
    for (const absl::Status& status : results) SLUICE_RETURN_IF_ERROR(status);
    OnRanks(ranks, [&](uint32_t r) { results[r] = made->collectives_[r]->Join(1, cards, r); });
    for (const absl::Status& status : results) SLUICE_RETURN_IF_ERROR(status);
    return made;
  }

  // Seconds an operation; 0 when it has failed.
  double Measure(const std::string& operation, int times) {
    std::atomic<bool> ok{true};
    const double seconds = OnRanks(ranks(), [&](uint32_t r) {
      for (int i = 0; i < times && ok; ++i) {
        if (absl::Status status = Run(operation, r); !status.ok()) {
          std::fprintf(stderr, "%s\n", status.ToString().c_str());
          ok = false;
        }
      }
    });
    return ok ? seconds / times : 0;
  }

  // Seconds in which every rank's thread copies `bytes` bytes, `times` times, between arrays of
  // this size.
  double MeasureCopies(size_t bytes, int times) {
    return OnRanks(ranks(),
                   [&](uint32_t r) {
                     const size_t size = arrays_[r].size() * sizeof(float);
                     for (int i = 0; i < times; ++i) {
                       for (size_t left = bytes; left > 0;) {
                         const size_t piece = std::min(left, size);
                         std::memcpy(copies_[r].data(), arrays_[r].data(), piece);
                         left -= piece;
                       }
                     }
                   }) /
           times;
  }

  uint32_t ranks() const { return static_cast<uint32_t>(collectives_.size()); }

 private:
  absl::Status Run(const std::string& operation, uint32_t r) {
    Collective& collective = *collectives_[r];
    const absl::Span<float> values = absl::MakeSpan(arrays_[r]);
    // The average keeps the values as they are, however often it is taken.
    if (operation == "allreduce") return collective.AllReduce(values, Collective::Op::kAverage);
    if (operation == "reduce_scatter")
      return collective.ReduceScatter(values, Collective::Op::kAverage);
    if (operation == "weighted_mean") return collective.Wait(collective.WeightedMean(0, values, 1));
    if (operation == "weighted_mean_bf16")
      return collective.Wait(collective.WeightedMean(0, values, 1, Collective::Wire::kBf16));
    if (operation == "all_gather") return collective.AllGather(values);
    return collective.Broadcast(
        absl::MakeSpan(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)),
        0);
  }

  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::vector<float>> arrays_, copies_;  // by rank
};

// Bytes that a rank reads or writes, in bytes of the array.
double Moved(const std::string& operation, double r) {
  if (operation == "allreduce" || operation == "weighted_mean") return 5 - 2 / r;
  if (operation == "weighted_mean_bf16") return 3.5 - 1 / r;
  if (operation == "reduce_scatter") return 3 - 1 / r;
  return 2;
}

struct Size {
  const char* name;
  size_t bytes;
  int times;  // operations a repetition, at most
};

// The time of a repetition beyond which it has fewer operations.
constexpr double kMostSeconds = 0.5;

// The operations of a repetition, of which there are at most `most`.
int TimesOf(Ranks& group, const std::string& operation, int most) {
  const double seconds = group.Measure(operation, std::min(most, 10));
  return seconds * most <= kMostSeconds ? most : std::max(1, int(kMostSeconds / seconds));
}

Benchmark CollectiveBenchmark(const std::string& operation, const std::string& engine, Size size,
                              uint32_t ranks) {
  Benchmark benchmark;
  benchmark.name =
      absl::StrCat("collective/", operation, "/", engine, "/", size.name, "/ranks", ranks);
  benchmark.unit = "GB/s";
  const bool shm = engine == "shm";
  benchmark.limit_name = shm ? "memcpy of the bytes that must move" : "plain TCP, the same bytes";
  if (!shm) {
    benchmark.unfit = [] {
      CollectiveOptions options;
      options.bind_address = "127.0.0.1";
      const absl::Status status = MakeCollective("gloo", options).status();
      return status.ok() ? std::string() : std::string(status.message());
    };
  }
  benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    const size_t bytes = settings.quick ? std::min(size.bytes, size_t{1} << 20) : size.bytes;
    SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Ranks> group,
                            Ranks::Create(engine, ranks, bytes / sizeof(float)));
    const int most = settings.quick ? 2 : std::max(1, shm ? size.times : size.times / 4);
    const int times = TimesOf(*group, operation, most);
    const double gigabytes = bytes / 1e9;
    if (shm) {
      const size_t copied = static_cast<size_t>(bytes * Moved(operation, ranks) / 2);
      return std::function<Sample()>([=] {
        Sample sample;
        sample.limit = gigabytes / group->MeasureCopies(copied, times);
        const double seconds = group->Measure(operation, times);
        sample.value = seconds > 0 ? gigabytes / seconds : 0;
        return sample;
      });
    }
    SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<TcpLoopback> tcp,
                            TcpLoopback::Create({bytes / 2, bytes / 2}));
    const bool twice = operation == "allreduce" || operation == "weighted_mean";
    const int messages = static_cast<int>(ranks - 1) * (twice ? 2 : 1);
    return std::function<Sample()>([=] {
      Sample sample;
      sample.limit = gigabytes / (tcp->Run(messages * times, 1) / times);
      const double seconds = group->Measure(operation, times);
      sample.value = seconds > 0 ? gigabytes / seconds : 0;
      return sample;
    });
  };
  return benchmark;
}

}  // namespace

void AddCollectiveBenchmarks(std::vector<Benchmark>* to) {
  const Size sizes[] = {{"4KiB", 4 << 10, 2000}, {"64KiB", 64 << 10, 500}, {"1MiB", 1 << 20, 60},
                        {"4MiB", 4 << 20, 20},   {"16MiB", 16 << 20, 8},   {"64MiB", 64 << 20, 3}};
  for (const char* operation : {"allreduce", "reduce_scatter", "all_gather", "broadcast"}) {
    for (const char* engine : {"shm", "gloo"}) {
      for (const Size& size : sizes) {
        for (const uint32_t ranks : {2, 4})
          to->push_back(CollectiveBenchmark(operation, engine, size, ranks));
      }
    }
  }
  for (const char* operation : {"weighted_mean", "weighted_mean_bf16"}) {
    for (const char* engine : {"shm", "gloo"}) {
      for (const Size& size : {sizes[2], sizes[4]})
        to->push_back(CollectiveBenchmark(operation, engine, size, 2));
    }
  }
}

}  // namespace sluice::bench

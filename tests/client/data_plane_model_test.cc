// Model check of the data plane, over every transport: ranks push, pull, exchange and commit at
// random against real pserver cores, and restart at any moment, while streams are cut, pservers
// stall, end and come back, routes are renewed, and shared memory is refused. Everything that is
// read must be possible according to a plain reference, and at the end each push was applied once.
//
// A failure prints its seed. SLUICE_SEED=N repeats that history alone: the operations and faults
// are the same, but not the speed of the threads. SLUICE_RUNS=N runs N histories of each test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/client/all_networks.h"
#include "tests/client/cluster_for_test.h"
#include "tests/client/counting_job.h"
#include "tests/client/model_faults.h"
#include "tests/client/plain_counts.h"
#include "tests/common/transport/faulty_transport.h"

namespace sluice {
namespace {

constexpr int kOperations = 60;                // of a rank
constexpr uint64_t kDataPlaneModelSteps = 15;  // of a sync job

// One history: the cluster, its faults, and what the workers share.
struct History {
  History(const NetworkKind& kind, TestMode mode, uint64_t seed)
      : mode(mode),
        seed(seed),
        random(seed),
        ranks(1 + static_cast<uint32_t>(random() % 3)),
        cluster(CountingJob(mode, 1 + static_cast<uint32_t>(random() % 3), ranks), kind.make()),
        faulty(cluster.transport(), {seed, 60}),
        faults(&cluster, random()),
        progress(static_cast<int>(ranks)) {}

  const TestMode mode;
  const uint64_t seed;
  std::mt19937_64 random;
  const uint32_t ranks;
  TestCluster cluster;
  FaultyTransport faulty;
  ModelFaults faults;
  Progress progress;
  PlainCounts counts{kItems};
};

std::string Problem(const char* what, const absl::Status& status) {
  return status.ok() ? "" : absl::StrCat(what, ": ", status.ToString());
}

// A rank of a history, whose lives follow each other.
class ModelWorker {
 public:
  ModelWorker(History* history, uint32_t rank)
      : history_(history), rank_(rank), random_(history->seed * 100 + rank) {
    BeginLife();
  }
  virtual ~ModelWorker() = default;
  // Empty when all went well.
  virtual std::string Run() = 0;

  // The values of all items, from the pservers.
  std::string ReadAll(std::shared_ptr<TestValues>* values) {
    std::vector<uint32_t> items;
    for (uint32_t item = 0; item < kItems; ++item) items.push_back(item);
    *values = ValuesOf(*client_, items, -1);
    PullRequest pull = (*values)->Pull();
    pull.evaluation = true;
    return Problem("read", client_->WaitPull(client_->StartPull(std::move(pull))));
  }

 protected:
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  // The process of the rank is lost, with whatever it waits for, and another one takes its place.
  void BeginLife() {
    client_.reset();
    client_ = history_->cluster.Client(rank_, &history_->faulty, ++life_);
  }
  std::vector<uint32_t> SomeItems() {
    std::vector<uint32_t> items;
    const int percent = 5 + static_cast<int>(random_() % 40);
    for (uint32_t item = 0; item < kKeys; ++item) {
      if (Chance(percent)) items.push_back(item);
    }
    if (items.empty() || Chance(60)) items.push_back(kDenseItem);
    return items;
  }
  static PullRequest PullOf(TestValues* values, bool dense) {
    PullRequest pull = values->Pull();
    if (!dense) pull.dense.clear();
    return pull;
  }
  History* const history_;
  const uint32_t rank_;
  std::mt19937_64 random_;
  uint64_t life_ = 0;
  std::unique_ptr<ParameterClient> client_;
};

// ------------------------------------------------------------------------------ async and Geo

class CountingWorker : public ModelWorker {
 public:
  using ModelWorker::ModelWorker;
  ~CountingWorker() override { client_.reset(); }  // before the buffers of its pulls

  std::string Run() override {
    for (int i = 0; i < kOperations; ++i) {
      if (std::string problem = Step(); !problem.empty()) return problem;
      history_->progress.Step();
    }
    if (std::string problem = AwaitPushes(0); !problem.empty()) return problem;
    if (std::string problem = AwaitPulls(0); !problem.empty()) return problem;
    return Problem("end of the epoch", client_->EndEpoch(0));
  }

  // All ranks have ended: reads must find every push.
  std::string CheckAll() {
    std::vector<uint64_t> unused;
    return ReadOwnCounts(&unused);
  }

 private:
  struct Pull {
    ParameterClient::Ticket ticket;
    std::shared_ptr<TestValues> values;
    std::vector<std::pair<uint32_t, PlainCounts::Counts>> least;  // by item
  };

  std::string Step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Push();
      case 4:
      case 5: {
        Pull pull = NewPull(SomeItems());
        pull.ticket =
            client_->StartPull(PullOf(pull.values.get(), pull.least.back().first == kDenseItem));
        pulls_.push_back(std::move(pull));
        return "";
      }
      case 6:
      case 7:
        return AwaitPushes(random_() % 4);
      case 8:
        return AwaitPulls(random_() % 3);
      default:
        return Chance(30) ? Restart() : "";
    }
  }

  Pull NewPull(const std::vector<uint32_t>& items) {
    Pull pull;
    pull.values = ValuesOf(*client_, items, -1);
    for (const uint32_t item : items) pull.least.push_back({item, history_->counts.Least(item)});
    return pull;
  }

  std::string Push() {
    const std::vector<uint32_t> items = SomeItems();
    const bool dense = HasDense(items), geo = history_->mode == TestMode::kGeo;
    // A delta is added, a gradient subtracted.
    PushRequest push = CountingPush(*client_, rank_, items, geo ? 1 : -1);
    history_->counts.Start(rank_, items);
    if (geo) return Exchange(std::move(push), items);
    if (dense && Chance(30)) {
      PushRequest early = push;
      early.sparse.clear();
      push.dense.clear();
      const absl::Status sent = client_->PushEarly(std::move(early));
      if (!sent.ok()) return Problem("early push", sent);
    }
    if (Chance(50)) return Problem("push", client_->StartPush(std::move(push)));
    Pull pull = NewPull(SomeItems());
    PullRequest next = PullOf(pull.values.get(), pull.least.back().first == kDenseItem);
    const absl::Status pushed = client_->StartPush(std::move(push), &next, &pull.ticket);
    pulls_.push_back(std::move(pull));
    return Problem("push", pushed);
  }

  std::string Exchange(PushRequest delta, const std::vector<uint32_t>& items) {
    Pull pull = NewPull(items);
    for (auto& [item, least] : pull.least) least[rank_] = history_->counts.Started(rank_, item);
    pull.ticket =
        client_->StartExchange(std::move(delta), PullOf(pull.values.get(), HasDense(items)));
    pulls_.push_back(std::move(pull));
    return "";
  }

  std::string AwaitPushes(size_t in_flight) {
    const absl::Status status = client_->WaitPushes(static_cast<int>(in_flight));
    if (!status.ok()) return Problem("pushes", status);
    history_->counts.Acknowledge(rank_, in_flight);
    return "";
  }

  std::string AwaitPulls(size_t in_flight) {
    for (; pulls_.size() > in_flight; pulls_.pop_front()) {
      const absl::Status status = client_->WaitPull(pulls_.front().ticket);
      if (!status.ok()) return Problem("pull", status);
      if (std::string problem = Check(pulls_.front()); !problem.empty()) return problem;
    }
    return "";
  }

  // Compares the values with the reference.
  std::string Check(const Pull& pull) {
    for (const auto& [item, least] : pull.least) {
      PlainCounts::Counts low = {}, high = {};
      for (uint32_t r = 0; r < kDim; ++r) {
        low[r] = UINT64_MAX;
        for (const float value : CountsAt(*pull.values, item, r)) {
          const auto count = static_cast<uint64_t>(std::llround(value));
          low[r] = std::min(low[r], count);
          high[r] = std::max(high[r], count);
        }
      }
      for (const PlainCounts::Counts& found : {low, high}) {
        std::string problem = history_->counts.Read(item, least, found);
        if (!problem.empty()) return problem;
      }
    }
    return "";
  }
  std::string ReadOwnCounts(std::vector<uint64_t>* own) {
    Pull all;
    for (uint32_t item = 0; item < kItems; ++item)
      all.least.push_back({item, history_->counts.Least(item)});
    if (std::string problem = ReadAll(&all.values); !problem.empty()) return problem;
    for (uint32_t item = 0; item < kItems; ++item) {
      const std::vector<float> column = CountsAt(*all.values, item, rank_);
      if (std::count(column.begin(), column.end(), column[0]) !=
          static_cast<int64_t>(column.size())) {
        return absl::StrCat("item ", item, " has a part of a push");
      }
      own->push_back(static_cast<uint64_t>(std::llround(column[0])));
    }
    return Check(all);
  }

  std::string Restart() {
    BeginLife();
    pulls_.clear();
    std::vector<uint64_t> own;
    if (std::string problem = ReadOwnCounts(&own); !problem.empty()) return problem;
    return history_->counts.EndLife(rank_, own, ShardsOfItems(*client_));
  }

  std::deque<Pull> pulls_;
};

// --------------------------------------------------------------------------------------- sync

// The tables of a sync job after some steps. Every gradient is a multiple of 8, and the weights of
// all ranks together are 1, 2 or 4, so that each mean is exact.
class PlainSteps {
 public:
  explicit PlainSteps(uint32_t ranks) : ranks_(ranks), rows_(kKeys * kDim), dense_(kManyElements) {}

  static double WeightOf(uint32_t rank) { return rank < 2 ? 1 : 2; }
  // The gradient of `rank` in `step`: a value of a row, or an element of the dense table.
  static float Gradient(uint64_t step, uint32_t rank, uint64_t what) {
    return 8 * (static_cast<float>(MixHash(step * 1000003 + rank * 131 + what) % 5) - 2);
  }
  static bool Touches(uint64_t step, uint32_t rank, uint32_t item) {
    return MixHash(step * 7919 + rank * 31 + item) % 3 == 0;
  }

  void Close(uint64_t step) {
    double all = 0;
    for (uint32_t rank = 0; rank < ranks_; ++rank) all += WeightOf(rank);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const auto share = static_cast<float>(WeightOf(rank) / all);
      for (uint32_t item = 0; item < kKeys; ++item) {
        if (!Touches(step, rank, item)) continue;
        for (uint32_t d = 0; d < kDim; ++d)
          rows_[item * kDim + d] -= share * Gradient(step, rank, item * kDim + d);
      }
      if (!Touches(step, rank, kDenseItem)) continue;
      for (uint64_t i = 0; i < kManyElements; ++i)
        dense_[i] -= share * Gradient(step, rank, 1000 + i);
    }
  }
  // Empty when these are the tables' values.
  std::string Compare(const TestValues& values, bool dense) const {
    for (size_t i = 0; i < values.rows.size(); ++i) {
      const uint32_t item = ItemOf(values.keys->keys[i / kDim]);
      const float expected = rows_[item * kDim + i % kDim];
      if (values.rows[i] != expected)
        return absl::StrCat("item ", item, " is ", values.rows[i], ", not ", expected);
    }
    if (dense && values.dense != dense_) return "the dense table differs";
    return "";
  }

 private:
  const uint32_t ranks_;
  std::vector<float> rows_, dense_;
};

class SyncWorker : public ModelWorker {
 public:
  SyncWorker(History* history, uint32_t rank)
      : ModelWorker(history, rank), expected_(history->ranks) {}
  ~SyncWorker() override { client_.reset(); }

  std::string Run() override {
    for (uint64_t step = 0; step < kDataPlaneModelSteps; ++step) {
      expected_.Close(step);
      // A later life of the rank makes the same step again.
      for (bool made = false; !made;) {
        if (std::string problem = Make(step, &made); !problem.empty()) return problem;
      }
      history_->progress.Step();
    }
    return Problem("end of the epoch", client_->EndEpoch(0));
  }

  std::string CheckAll() {
    std::shared_ptr<TestValues> all;
    if (std::string problem = ReadAll(&all); !problem.empty()) return problem;
    return expected_.Compare(*all, true);
  }

 private:
  // `made` stays false when the rank's life has ended meanwhile.
  std::string Make(uint64_t step, bool* made) {
    const absl::Status pushed = client_->PushStep(step, Gradient(step));
    if (!pushed.ok()) return Problem("push", pushed);
    history_->progress.Step();
    if (Chance(10)) return BeginLife(), "";
    const std::vector<uint32_t> items = SomeItems();
    const bool dense = HasDense(items);
    const auto values = ValuesOf(*client_, items, -1);
    const auto ticket = client_->StartCommit(step, PullOf(values.get(), dense));
    history_->progress.Step();
    if (Chance(10)) return BeginLife(), "";
    const absl::Status pulled = client_->WaitPull(ticket);
    if (!pulled.ok()) return Problem("commit", pulled);
    *made = true;
    const std::string differs = expected_.Compare(*values, dense);
    return differs.empty() ? "" : absl::StrCat("after step ", step, ": ", differs);
  }

  PushRequest Gradient(uint64_t step) const {
    std::vector<uint32_t> items;
    for (uint32_t item = 0; item < kItems; ++item) {
      if (PlainSteps::Touches(step, rank_, item)) items.push_back(item);
    }
    const auto values = ValuesOf(*client_, items, 0);
    for (size_t i = 0; i < values->rows.size(); ++i) {
      const uint32_t item = ItemOf(values->keys->keys[i / kDim]);
      values->rows[i] = PlainSteps::Gradient(step, rank_, item * kDim + i % kDim);
    }
    for (uint64_t i = 0; i < kManyElements; ++i)
      values->dense[i] = PlainSteps::Gradient(step, rank_, 1000 + i);
    PushRequest push = TestValues::Push(values, PlainSteps::WeightOf(rank_));
    if (!HasDense(items)) push.dense.clear();
    return push;
  }

  PlainSteps expected_;
};

// --------------------------------------------------------------------------------- the check

template <typename Worker>
std::string RunHistory(History* history) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t rank = 0; rank < history->ranks; ++rank)
    workers.push_back(std::make_unique<Worker>(history, rank));
  std::vector<std::string> problems(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      problems[i] = workers[i]->Run();
      history->progress.Done();
    });
  }
  std::thread end([&] {
    for (std::thread& thread : threads) thread.join();
    history->faults.GiveUp();
  });
  history->faults.Run(&history->progress);
  end.join();
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!problems[i].empty()) return absl::StrCat("rank ", i, ": ", problems[i]);
  }
  for (const auto& worker : workers) {
    if (std::string problem = worker->CheckAll(); !problem.empty())
      return absl::StrCat("at the end: ", problem);
  }
  return "";
}

uint64_t NumberIn(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class DataPlaneModelTest : public ::testing::TestWithParam<NetworkKind> {
 protected:
  template <typename Worker>
  void Check(TestMode mode) {
    const uint64_t only = NumberIn("SLUICE_SEED", 0);
    const uint64_t last = only != 0 ? only : NumberIn("SLUICE_RUNS", 4);
    int faults = 0, streams = 0, fallbacks = 0;
    for (uint64_t seed = only != 0 ? only : 1; seed <= last; ++seed) {
      History history(GetParam(), mode, seed);
      ASSERT_EQ(RunHistory<Worker>(&history), "") << "repeat it with SLUICE_SEED=" << seed;
      const ModelFaults::Counts& c = history.faults.counts();
      faults += history.faulty.cuts() + c.cuts + c.stalls + c.restarts + c.routes;
      streams += history.cluster.network()->shared_memory_streams();
      fallbacks += history.cluster.network()->fallback_streams();
    }
    if (only != 0) return;
    EXPECT_GT(faults, 10);
    if (std::string(GetParam().name) != "SharedMemory") return;
    EXPECT_GT(streams, 10);
    EXPECT_GT(fallbacks, 0);
  }
};

TEST_P(DataPlaneModelTest, AsyncPushesAreAppliedOnceAndReadsFindThem) {
  Check<CountingWorker>(TestMode::kAsync);
}

TEST_P(DataPlaneModelTest, GeoDeltasAreMergedOnceAndAnswersHaveThem) {
  Check<CountingWorker>(TestMode::kGeo);
}

TEST_P(DataPlaneModelTest, SyncStepsHaveTheValuesOfTheReference) {
  Check<SyncWorker>(TestMode::kSync);
}

INSTANTIATE_TEST_SUITE_P(Transports, DataPlaneModelTest, ::testing::ValuesIn(AllNetworks()),
                         NameOf);

}  // namespace
}  // namespace sluice

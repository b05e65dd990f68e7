// Every engine keeps the contract of Collective, with ranks as threads of this process.
#include "common/collective/collective.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>

#include "common/base/bf16.h"
#include "common/base/status_macros.h"
#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

using Arrays = std::vector<std::vector<float>>;  // by rank

constexpr size_t kChunkBytes = 64 << 10;

Arrays RandomArrays(uint32_t ranks, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  Arrays arrays(ranks, std::vector<float>(n));
  for (auto& array : arrays)
    for (float& v : array) v = value(random);
  return arrays;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool Near(float x, double reference, double tolerance) {
  return std::isfinite(x) && std::abs(x - reference) <= tolerance;
}

// By plain loops in the order of the ranks.
std::vector<float> MeanInRankOrder(const Arrays& arrays, const std::vector<double>& weights) {
  std::vector<float> mean(arrays[0].size(), 0.0f);
  double total = 0;
  bool first = true;
  for (size_t r = 0; r < arrays.size(); ++r) {
    total += weights[r];
    if (weights[r] == 0) continue;
    for (size_t i = 0; i < mean.size(); ++i) {
      const float product = static_cast<float>(weights[r]) * arrays[r][i];
      mean[i] = first ? product : mean[i] + product;
    }
    first = false;
  }
  for (float& m : mean)
    if (total != 0 && static_cast<float>(total) != 1.0f) m /= static_cast<float>(total);
  return mean;
}

std::vector<float> ToBf16(std::vector<float> values) {
  for (float& v : values) v = WidenBf16(RoundToBf16(v));
  return values;
}

Arrays ToBf16(Arrays arrays) {
  for (std::vector<float>& values : arrays) values = ToBf16(values);
  return arrays;
}

double Reduced(const Arrays& arrays, size_t i, Collective::Op op) {
  double result = arrays[0][i];
  for (size_t r = 1; r < arrays.size(); ++r) {
    const double v = arrays[r][i];
    if (op == Collective::Op::kMin) {
      result = std::min(result, v);
    } else if (op == Collective::Op::kMax) {
      result = std::max(result, v);
    } else {
      result += v;
    }
  }
  return op == Collective::Op::kAverage ? result / arrays.size() : result;
}

struct Case {
  std::string engine;
  uint32_t ranks, comm_num;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.engine << " ranks " << c.ranks << " communicators " << c.comm_num;
}

class CollectiveTest : public ::testing::TestWithParam<Case> {
 protected:
  CollectiveTest() : group_(GetParam().engine, GetParam().ranks, Options(), Hosts()) {
    group_.Join();
  }
  static CollectiveOptions Options() {
    CollectiveOptions options;
    options.chunk_bytes = kChunkBytes;
    options.comm_num = GetParam().comm_num;
    return options;
  }
  static std::vector<std::string> Hosts() {
    std::vector<std::string> hosts;
    // Ranks of one host that are not next to each other: a b a a.
    for (uint32_t r = 0; r < GetParam().ranks && GetParam().engine == "two_level"; ++r)
      hosts.push_back(r == 1 ? "b" : "a");
    return hosts;
  }
  // The ranks sum in their order, whatever the engine; two levels do not.
  static bool InRankOrder() { return GetParam().engine != "two_level"; }

  // Below and above what is sent or reduced whole, and larger than a chunk.
  static std::vector<size_t> Sizes() {
    return {0, 1, 15, 16, 17, 1001, 4097, 16385, 30011, 150001};
  }
  std::vector<double> Weights() const {
    const std::vector<double> weights = {3, 0.5, 2048, 0.1};
    return std::vector<double>(weights.begin(), weights.begin() + ranks());
  }
  uint32_t ranks() const { return GetParam().ranks; }

  RankThreads group_;
};

TEST_P(CollectiveTest, WeightedMeanIsThatOfTheRanksValues) {
  std::vector<size_t> sizes = Sizes();
  sizes.push_back(1 << 20);  // 4 MiB
  for (const size_t n : sizes) {
    const Arrays before = RandomArrays(ranks(), n, 7);
    for (const size_t zero : {size_t{99}, size_t{0}, size_t{1}}) {
      Arrays arrays = before;
      std::vector<double> weights = Weights();
      if (zero < weights.size()) weights[zero] = 0;
      group_.ExpectOk([&](uint32_t r, Collective& c) {
        return c.Wait(c.WeightedMean(n, absl::MakeSpan(arrays[r]), weights[r]));
      });
      const std::vector<float> expected = MeanInRankOrder(before, weights);
      double total = 0;
      for (const double w : weights) total += w;
      for (uint32_t r = 0; r < ranks(); ++r) {
        EXPECT_TRUE(SameBits(arrays[r], arrays[0])) << n << " rank " << r;
        if (InRankOrder()) {
          EXPECT_TRUE(SameBits(arrays[r], expected)) << n << " rank " << r;
        }
      }
      for (size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (uint32_t r = 0; r < ranks(); ++r) sum += weights[r] * before[r][i];
        ASSERT_TRUE(Near(arrays[0][i], total == 0 ? 0 : sum / total, 1e-6)) << n << " at " << i;
      }
    }
  }
}

TEST_P(CollectiveTest, InBf16TheValuesAndTheirMeanAreRounded) {
  // Each rounding is off by at most 2^-8 of a magnitude below 1; two levels round once more.
  const double tolerance = (InRankOrder() ? 2 : 3) * 0x1p-8 + 1e-6;
  // 30011 travel at once in bfloat16, and in pieces in f32.
  for (const size_t n : {0, 1, 17, 1001, 30011, 150001}) {
    const Arrays before = RandomArrays(ranks(), n, 43);
    for (const size_t zero : {99, 1}) {
      Arrays arrays = before;
      std::vector<double> weights = Weights();
      if (zero < weights.size()) {
        weights[zero] = 0;
        std::fill(arrays[zero].begin(), arrays[zero].end(),
                  std::numeric_limits<float>::quiet_NaN());
      }
      group_.ExpectOk([&](uint32_t r, Collective& c) {
        return c.Wait(
            c.WeightedMean(n, absl::MakeSpan(arrays[r]), weights[r], Collective::Wire::kBf16));
      });
      const std::vector<float> expected = ToBf16(MeanInRankOrder(ToBf16(before), weights));
      double total = 0;
      for (const double w : weights) total += w;
      for (uint32_t r = 0; r < ranks(); ++r) {
        EXPECT_TRUE(SameBits(arrays[r], arrays[0])) << n << " rank " << r;
        if (InRankOrder()) {
          EXPECT_TRUE(SameBits(arrays[r], expected)) << n << " rank " << r;
        }
      }
      EXPECT_TRUE(SameBits(arrays[0], ToBf16(arrays[0]))) << n;
      for (size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (uint32_t r = 0; r < ranks(); ++r) sum += weights[r] * before[r][i];
        ASSERT_TRUE(Near(arrays[0][i], total == 0 ? 0 : sum / total, tolerance))
            << n << " at " << i << ": " << arrays[0][i];
      }
    }
  }
}

TEST_P(CollectiveTest, NanAndInfinitySurviveBf16) {
  for (const size_t n : {40, 100003}) {
    Arrays arrays = RandomArrays(ranks(), n, 47);
    arrays[ranks() - 1][n / 2] = std::numeric_limits<float>::quiet_NaN();
    arrays[0][n / 3] = -std::numeric_limits<float>::infinity();
    group_.ExpectOk([&](uint32_t r, Collective& c) {
      return c.Wait(c.WeightedMean(1, absl::MakeSpan(arrays[r]), 2, Collective::Wire::kBf16));
    });
    for (const auto& array : arrays) {
      EXPECT_TRUE(std::isnan(array[n / 2]));
      EXPECT_EQ(array[n / 3], -std::numeric_limits<float>::infinity());
      EXPECT_EQ(
          std::count_if(array.begin(), array.end(), [](float v) { return !std::isfinite(v); }), 2);
    }
  }
}

TEST_P(CollectiveTest, AllReduceOfEveryOperation) {
  using Op = Collective::Op;
  for (const size_t n : Sizes()) {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax}) {
      const Arrays before = RandomArrays(ranks(), n, 11);
      Arrays arrays = before;
      group_.ExpectOk(
          [&](uint32_t r, Collective& c) { return c.AllReduce(absl::MakeSpan(arrays[r]), op); });
      for (uint32_t r = 0; r < ranks(); ++r) EXPECT_TRUE(SameBits(arrays[r], arrays[0]));
      for (size_t i = 0; i < n; ++i)
        ASSERT_TRUE(Near(arrays[0][i], Reduced(before, i, op), 1e-6)) << n << " at " << i;
    }
  }
}

TEST_P(CollectiveTest, ReduceScatterGivesEachRankItsPart) {
  using Op = Collective::Op;
  for (const size_t n : Sizes()) {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax}) {
      const Arrays before = RandomArrays(ranks(), n, 13);
      Arrays arrays = before;
      group_.ExpectOk([&](uint32_t r, Collective& c) {
        return c.ReduceScatter(absl::MakeSpan(arrays[r]), op);
      });
      for (uint32_t r = 0; r < ranks(); ++r) {
        const ArrayPart part = PartOf(n, ranks(), r);
        for (size_t i = part.begin; i < part.end; ++i)
          ASSERT_TRUE(Near(arrays[r][i], Reduced(before, i, op), 1e-6)) << n << " at " << i;
      }
    }
  }
}

TEST_P(CollectiveTest, AllGatherBringsTheBitsOfEveryPart) {
  for (const size_t n : Sizes()) {
    const Arrays before = RandomArrays(ranks(), n, 17);
    Arrays arrays = before;
    group_.ExpectOk(
        [&](uint32_t r, Collective& c) { return c.AllGather(absl::MakeSpan(arrays[r])); });
    std::vector<float> expected(n);
    for (uint32_t r = 0; r < ranks(); ++r) {
      const ArrayPart part = PartOf(n, ranks(), r);
      std::copy(before[r].begin() + part.begin, before[r].begin() + part.end,
                expected.begin() + part.begin);
    }
    for (uint32_t r = 0; r < ranks(); ++r) EXPECT_TRUE(SameBits(arrays[r], expected)) << n;
  }
}

TEST_P(CollectiveTest, BroadcastBringsTheBytesOfTheRoot) {
  for (const size_t n : {0, 1, 63, 65536, 65537, 100003, 1 << 20}) {
    for (uint32_t root = 0; root < ranks(); ++root) {
      std::vector<std::vector<uint8_t>> bytes(ranks(), std::vector<uint8_t>(n));
      for (size_t i = 0; i < n; ++i) bytes[root][i] = static_cast<uint8_t>(i * 7 + root);
      const std::vector<uint8_t> expected = bytes[root];
      group_.ExpectOk(
          [&](uint32_t r, Collective& c) { return c.Broadcast(absl::MakeSpan(bytes[r]), root); });
      for (uint32_t r = 0; r < ranks(); ++r) EXPECT_EQ(bytes[r], expected) << n;
    }
  }
}

TEST_P(CollectiveTest, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<uint32_t> come{0};
  group_.ExpectOk([&](uint32_t, Collective& c) -> absl::Status {
    for (uint32_t round = 1; round <= 50; ++round) {
      come.fetch_add(1);
      SLUICE_RETURN_IF_ERROR(c.Barrier());
      if (come.load() < round * ranks()) return absl::InternalError("passed too soon");
      SLUICE_RETURN_IF_ERROR(c.Barrier());
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectiveTest, NobodyGetsABroadcastBeforeAllHaveBegunIt) {
  std::atomic<uint32_t> come{0};
  group_.ExpectOk([&](uint32_t r, Collective& c) -> absl::Status {
    for (uint32_t round = 1; round <= 50; ++round) {
      std::vector<uint8_t> bytes(16, static_cast<uint8_t>(r));
      come.fetch_add(1);
      SLUICE_RETURN_IF_ERROR(c.Broadcast(absl::MakeSpan(bytes), 0));
      if (come.load() < round * ranks()) return absl::InternalError("came too soon");
      if (bytes[0] != 0) return absl::InternalError("not the bytes of rank 0");
      SLUICE_RETURN_IF_ERROR(c.Barrier());
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectiveTest, AllWeightsZeroGiveZeros) {
  for (const size_t n : {5, 100003}) {
    Arrays arrays = RandomArrays(ranks(), n, 19);
    for (auto& array : arrays) array[0] = std::numeric_limits<float>::quiet_NaN();
    group_.ExpectOk([&](uint32_t r, Collective& c) {
      return c.Wait(c.WeightedMean(1, absl::MakeSpan(arrays[r]), 0));
    });
    for (const auto& array : arrays) EXPECT_TRUE(SameBits(array, std::vector<float>(n, 0.0f)));
  }
}

TEST_P(CollectiveTest, ValuesOfARankWithWeightZeroAreNotRead) {
  if (ranks() == 1) return;
  for (const size_t n : {7, 100003}) {
    Arrays arrays = RandomArrays(ranks(), n, 23);
    std::fill(arrays[1].begin(), arrays[1].end(), std::numeric_limits<float>::quiet_NaN());
    group_.ExpectOk([&](uint32_t r, Collective& c) {
      return c.Wait(c.WeightedMean(1, absl::MakeSpan(arrays[r]), r == 1 ? 0 : 2));
    });
    for (const auto& array : arrays)
      for (const float v : array) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(CollectiveTest, NanStaysNan) {
  using Op = Collective::Op;
  const uint32_t last = ranks() - 1;
  for (const size_t n : {40, 100003}) {
    for (const uint32_t rank : {0u, last}) {
      for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax}) {
        Arrays arrays = RandomArrays(ranks(), n, 29);
        arrays[rank][n / 2] = std::numeric_limits<float>::quiet_NaN();
        group_.ExpectOk(
            [&](uint32_t r, Collective& c) { return c.AllReduce(absl::MakeSpan(arrays[r]), op); });
        for (const auto& array : arrays) {
          EXPECT_TRUE(std::isnan(array[n / 2]));
          EXPECT_EQ(std::count_if(array.begin(), array.end(), [](float v) { return v != v; }), 1);
        }
      }
    }
  }
}

TEST_P(CollectiveTest, TwoRunsGiveTheSameBits) {
  const Arrays before = RandomArrays(ranks(), 300007, 31);
  for (const auto wire : {Collective::Wire::kF32, Collective::Wire::kBf16}) {
    Arrays runs[2];
    for (Arrays& arrays : runs) {
      arrays = before;
      group_.ExpectOk([&](uint32_t r, Collective& c) {
        return c.Wait(c.WeightedMean(5, absl::MakeSpan(arrays[r]), Weights()[r], wire));
      });
    }
    EXPECT_TRUE(SameBits(runs[0][0], runs[1][0])) << static_cast<int>(wire);
  }
}

TEST_P(CollectiveTest, SeveralWeightedMeansMayBeUnderWay) {
  constexpr int kBuckets = 12;
  std::vector<Arrays> buckets, before;
  for (int b = 0; b < kBuckets; ++b) before.push_back(RandomArrays(ranks(), 5000 * b + 3, b));
  buckets = before;
  group_.ExpectOk([&](uint32_t r, Collective& c) -> absl::Status {
    std::vector<Collective::Ticket> tickets;
    for (int b = 0; b < kBuckets; ++b)
      tickets.push_back(c.WeightedMean(b, absl::MakeSpan(buckets[b][r]), Weights()[r]));
    if (!std::is_sorted(tickets.begin(), tickets.end())) return absl::InternalError("tickets");
    SLUICE_RETURN_IF_ERROR(c.Barrier());  // after all of them
    for (const Collective::Ticket ticket : tickets) SLUICE_RETURN_IF_ERROR(c.Wait(ticket));
    return absl::OkStatus();
  });
  for (int b = 0; b < kBuckets; ++b) {
    for (uint32_t r = 0; r < ranks(); ++r) {
      EXPECT_TRUE(SameBits(buckets[b][r], buckets[b][0]));
      if (InRankOrder()) {
        EXPECT_TRUE(SameBits(buckets[b][r], MeanInRankOrder(before[b], Weights())));
      }
    }
  }
}

// Every rank gets this error, also from later calls, until a new generation.
void ExpectAllGet(RankThreads* group, absl::StatusCode code, const RankThreads::Work& work) {
  for (int i = 0; i < 2; ++i) {
    const std::vector<absl::Status> results = group->Run(work);
    for (uint32_t r = 0; r < group->ranks(); ++r) EXPECT_EQ(results[r].code(), code) << results[r];
  }
}

TEST_P(CollectiveTest, DisagreementIsAnErrorOfAllRanksUntilANewGeneration) {
  if (ranks() == 1) return;
  const uint32_t odd = ranks() - 1;
  std::vector<std::vector<float>> arrays(ranks(), std::vector<float>(200003));
  const auto span = [&](uint32_t r, size_t n) { return absl::MakeSpan(arrays[r].data(), n); };
  const std::vector<RankThreads::Work> disagreements = {
      [&](uint32_t r, Collective& c) {  // size, both small
        return c.Wait(c.WeightedMean(1, span(r, r == odd ? 4 : 3), 1));
      },
      [&](uint32_t r, Collective& c) {  // size, both large
        return c.Wait(c.WeightedMean(1, span(r, r == odd ? 200000 : 100000), 1));
      },
      [&](uint32_t r, Collective& c) {  // size, small and large
        return c.Wait(c.WeightedMean(1, span(r, r == odd ? 200000 : 10), 1));
      },
      [&](uint32_t r, Collective& c) {  // step
        return c.Wait(c.WeightedMean(r == odd ? 8 : 9, span(r, 100), 1));
      },
      [&](uint32_t r, Collective& c) {  // operation
        return c.AllReduce(span(r, 100), r == odd ? Collective::Op::kMin : Collective::Op::kMax);
      },
      [&](uint32_t r, Collective& c) {  // kind
        return r == odd ? c.Barrier() : c.AllGather(span(r, 50000));
      },
      [&](uint32_t r, Collective& c) {  // form
        return c.Wait(
            c.WeightedMean(1, span(r, 100), 1, static_cast<Collective::Wire>(r == odd ? 1 : 0)));
      },
      [&](uint32_t r, Collective& c) {  // form, of a large array
        return c.Wait(
            c.WeightedMean(1, span(r, 200000), 1, static_cast<Collective::Wire>(r == odd ? 0 : 1)));
      },
      [&](uint32_t r, Collective& c) {  // weight
        return c.Wait(c.WeightedMean(1, span(r, 100), r == odd ? -1 : 1));
      }};
  uint64_t generation = 1;
  for (const RankThreads::Work& work : disagreements) {
    ExpectAllGet(&group_, absl::StatusCode::kInvalidArgument, work);
    group_.Join(++generation);
    group_.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });
  }
}

TEST_P(CollectiveTest, CancelEndsTheCallAndTheOthersSeeTheRankLeave) {
  if (ranks() == 1) return;
  const std::vector<absl::Status> results = group_.Run([&](uint32_t r, Collective& c) {
    if (r != 1) return c.Barrier();
    for (uint32_t other = 0; other < ranks(); ++other)
      if (other != 1)
        while (group_.rank(other).WaitingFor().empty()) std::this_thread::yield();
    c.Cancel();
    return c.Barrier();
  });
  for (uint32_t r = 0; r < ranks(); ++r) {
    EXPECT_EQ(results[r].code(),
              r == 1 ? absl::StatusCode::kCancelled : absl::StatusCode::kUnavailable)
        << results[r];
    if (r != 1) {
      EXPECT_EQ(RankAtFault(results[r]), 1u) << results[r];
    }
  }
  group_.Join(2);
  group_.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });
}

TEST_P(CollectiveTest, CancelFromAnotherThreadEndsAWait) {
  if (ranks() == 1) return;
  const absl::Status status = [&] {
    std::thread canceller([&] {
      while (group_.rank(0).WaitingFor().empty()) std::this_thread::yield();
      group_.rank(0).Cancel();
    });
    const absl::Status waited = group_.rank(0).Barrier();
    canceller.join();
    return waited;
  }();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_P(CollectiveTest, LeavingAfterTheLastOperationCutsNobodyOff) {
  for (uint64_t generation = 2; generation < 8; ++generation) {
    Arrays arrays = RandomArrays(ranks(), 100003, 37);
    group_.Join(generation);
    group_.ExpectOk([&](uint32_t r, Collective& c) -> absl::Status {
      SLUICE_RETURN_IF_ERROR(c.AllReduce(absl::MakeSpan(arrays[r]), Collective::Op::kSum));
      if (generation % 2 == 0) SLUICE_RETURN_IF_ERROR(c.Barrier());
      c.Leave();
      return absl::OkStatus();
    });
    for (uint32_t r = 0; r < ranks(); ++r) EXPECT_TRUE(SameBits(arrays[r], arrays[0]));
  }
}

TEST_P(CollectiveTest, OperationsNeedAJoinedGroup) {
  group_.rank(0).Leave();
  EXPECT_EQ(group_.rank(0).Barrier().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(group_.rank(0).Wait(group_.rank(0).WeightedMean(1, {}, 1)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(group_.rank(0).Wait(12345).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CollectiveTest, CardsOfAnotherGenerationOrEngineAreRefused) {
  const std::vector<std::string> stale = group_.Listen(2);
  group_.Listen(3);
  EXPECT_EQ(group_.rank(0).Join(3, stale, 0).code(), absl::StatusCode::kInvalidArgument);
  group_.Listen(4);
  EXPECT_EQ(group_.rank(0).Join(4, std::vector<std::string>(ranks(), "no card"), 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group_.rank(0).Listen(4, 0, ranks()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // Gloo is not built with the thread sanitizer, which then reports false races.
#ifdef __SANITIZE_THREAD__
  const std::vector<std::string> engines = {"shm"};
#else
  const std::vector<std::string> engines = {"shm", "gloo", "two_level", "nccl"};
#endif
  for (const std::string& engine : engines) {
    const bool simulated = engine == "nccl" && getenv("SIMULATED_CUDA") != nullptr;
    for (const uint32_t ranks : {1, 2, 3, 4}) {
      if (!simulated && !CanMake(engine, ranks)) break;
      cases.push_back({engine, ranks, 1});
      if (ranks == 3) cases.push_back({engine, ranks, 3});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, CollectiveTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return absl::StrCat(
                               info.param.engine, info.param.ranks,
                               info.param.comm_num == 1 ? "" : "_several_communicators");
                         });

// Many means at a time, the one numbered `odd` with other sizes on the last rank.
std::vector<absl::Status> DisagreeOnce(RankThreads* group, int odd) {
  constexpr int kMeans = 9;
  return group->Run([&](uint32_t r, Collective& c) {
    std::vector<std::vector<float>> arrays;
    std::vector<Collective::Ticket> tickets;
    for (int i = 0; i < kMeans; ++i)
      arrays.emplace_back(i == odd && r + 1 == group->ranks() ? 50000 : 100 + 30000 * i, 1.0f);
    for (int i = 0; i < kMeans; ++i)
      tickets.push_back(c.WeightedMean(i, absl::MakeSpan(arrays[i]), 1));
    // Once one has failed, all later ones have its error.
    absl::Status first;
    for (const Collective::Ticket ticket : tickets) {
      const absl::Status status = c.Wait(ticket);
      if (!first.ok() && status != first) return absl::InternalError("another error");
      first = status;
    }
    return first;
  });
}

TEST_P(CollectiveTest, TheFirstErrorOfAnyCommunicatorEndsAll) {
  if (ranks() == 1) return;
  // A rank may first notice that another one has ended a communicator on which they agreed, and
  // then knows of an end alone.
  const bool may_be_an_end = GetParam().comm_num > 1;
  const auto is_expected = [may_be_an_end](const absl::Status& status) {
    return absl::IsInvalidArgument(status) || (may_be_an_end && absl::IsUnavailable(status));
  };
  uint64_t generation = 1;
  for (const int odd : {0, 1, 2, 5, 8}) {
    const std::vector<absl::Status> ends = DisagreeOnce(&group_, odd);
    for (const absl::Status& status : ends) EXPECT_TRUE(is_expected(status)) << status;
    EXPECT_TRUE(std::any_of(ends.begin(), ends.end(), absl::IsInvalidArgument)) << ends[0];
    group_.Run([&](uint32_t r, Collective& c) {
      const absl::Status status = c.Barrier();
      EXPECT_TRUE(is_expected(status)) << r << ": " << status;
      return absl::OkStatus();
    });
    group_.Join(++generation);
    group_.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });
  }
}

TEST(CommunicatorsTest, RanksWithOtherNumbersOfThemAreRefused) {
  std::vector<std::unique_ptr<Collective>> ranks;
  std::vector<std::string> cards;
  for (const uint32_t comm_num : {1, 2, 3}) {
    CollectiveOptions options;
    options.comm_num = comm_num;
    ranks.push_back(*MakeCollective("shm", options));
    cards.push_back(*ranks.back()->Listen(1, cards.size(), 3));
  }
  for (uint32_t r = 0; r < 3; ++r)
    EXPECT_EQ(ranks[r]->Join(1, cards, r).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CollectiveResultsTest, DoNotDependOnTheSizeOfChunks) {
  const Arrays before = RandomArrays(3, 150001, 41);
  Arrays results[3];
  const size_t chunks[] = {4 << 10, 64 << 10, 1 << 20};
  for (int i = 0; i < 3; ++i) {
    CollectiveOptions options;
    options.chunk_bytes = chunks[i];
    RankThreads group("shm", 3, options);
    group.Join();
    results[i] = before;
    group.ExpectOk([&](uint32_t r, Collective& c) {
      return c.Wait(c.WeightedMean(1, absl::MakeSpan(results[i][r]), r + 0.3));
    });
  }
  EXPECT_TRUE(SameBits(results[0][0], results[1][0]));
  EXPECT_TRUE(SameBits(results[0][0], results[2][0]));
}

TEST(PartOfTest, PartsCoverTheArrayInOrderAndAreWholeCacheLines) {
  for (const size_t n : {0, 1, 15, 16, 17, 100, 1000, 12345}) {
    for (const uint32_t ranks : {1, 2, 3, 7, 64}) {
      size_t end = 0;
      for (uint32_t r = 0; r < ranks; ++r) {
        const ArrayPart part = PartOf(n, ranks, r);
        EXPECT_EQ(part.begin, end);
        EXPECT_LE(part.size(), PartOf(n, ranks, 0).size());
        if (part.end < n) {
          EXPECT_EQ(part.size() % 16, 0u);
        }
        end = part.end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

}  // namespace
}  // namespace sluice

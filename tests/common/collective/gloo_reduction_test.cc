// Reductions in pieces over the connections of GlooPeers, with ranks as threads of this process.
#include "common/collective/gloo_reduction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "common/base/status_macros.h"
#include "common/collective/gloo_peers.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using Op = Collective::Op;

// A rank's part of this has more pieces than there is room for at a time, up to four ranks.
constexpr size_t kManyPieces = 4 * 3 * (1 << 20) + 17;
// Parts of several small pieces, up to four ranks.
constexpr size_t kSomePieces = 4 * 2 * (32 << 10) + 17;

// A group of ranks that have joined.
class Ranks {
 public:
  explicit Ranks(uint32_t ranks, absl::Duration timeout = absl::Seconds(30)) : scratch_(ranks) {
    CollectiveOptions options;
    options.bind_address = "127.0.0.1";
    options.timeout = timeout;
    std::vector<CollectiveCard> cards;
    std::vector<uint32_t> members;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      peers_.push_back(std::make_unique<GlooPeers>(options));
      const auto card = peers_[rank]->Listen(1, rank, ranks);
      EXPECT_TRUE(card.ok()) << card.status();
      cards.push_back(*card);
      members.push_back(rank);
    }
    for (const absl::Status& joined :
         Run([&](uint32_t rank) { return peers_[rank]->Join(cards, members); })) {
      EXPECT_TRUE(joined.ok()) << joined;
    }
  }

  GlooPeers& peers(uint32_t rank) { return *peers_[rank]; }

  // Runs `work` on a thread for each rank, and returns what it returned.
  std::vector<absl::Status> Run(const std::function<absl::Status(uint32_t rank)>& work) {
    std::vector<absl::Status> results(peers_.size());
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const SigpipeBlock block;
        results[rank] = work(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  // Reduces values of this rank. `headers`: of all ranks.
  absl::Status Reduce(uint32_t rank, const std::vector<OperationHeader>& headers,
                      std::vector<float>* values) {
    SLUICE_RETURN_IF_ERROR(peers_[rank]->Begin(headers[rank]));
    SLUICE_RETURN_IF_ERROR(peers_[rank]->AwaitAcknowledgements());
    return GlooReduction(peers_[rank].get(), headers, absl::MakeSpan(*values), &scratch_[rank])
        .Run();
  }

  // Reduces array r of rank r, in all ranks.
  void ExpectReduced(const std::vector<OperationHeader>& headers,
                     std::vector<std::vector<float>>* arrays) {
    for (const absl::Status& reduced :
         Run([&](uint32_t rank) { return Reduce(rank, headers, &(*arrays)[rank]); })) {
      EXPECT_TRUE(reduced.ok()) << reduced;
    }
  }

 private:
  std::vector<std::unique_ptr<GlooPeers>> peers_;
  std::vector<GlooReduction::Scratch> scratch_;
};

std::vector<std::vector<float>> RandomArrays(uint32_t ranks, size_t n) {
  std::mt19937 random(ranks + static_cast<uint32_t>(n));
  std::vector<std::vector<float>> arrays(ranks, std::vector<float>(n));
  for (auto& array : arrays)
    for (float& v : array) v = static_cast<float>(random()) * 0x1p-31f - 1;
  return arrays;
}

// Element i of the reduction, in float64.
double Reference(const std::vector<std::vector<float>>& arrays, size_t i, Op op) {
  double sum = 0, smallest = arrays[0][i], largest = arrays[0][i];
  for (const std::vector<float>& array : arrays) {
    sum += array[i];
    smallest = std::min<double>(smallest, array[i]);
    largest = std::max<double>(largest, array[i]);
  }
  if (op == Op::kMin) return smallest;
  if (op == Op::kMax) return largest;
  return op == Op::kAverage ? sum / static_cast<double>(arrays.size()) : sum;
}

// The elements of `got` from begin to end that are not close to the reference.
size_t CountWrong(const std::vector<float>& got, const std::vector<std::vector<float>>& arrays,
                  ArrayPart part, Op op) {
  size_t wrong = 0;
  for (size_t i = part.begin; i < part.end; ++i) {
    const bool close = std::isfinite(got[i]) && std::abs(got[i] - Reference(arrays, i, op)) <= 1e-6;
    wrong += !close;
  }
  return wrong;
}

class GlooReductionTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static std::vector<size_t> Sizes() { return {0, 1, 17, 1001, kSomePieces, kManyPieces}; }
  // One is enough to see that many pieces come to their places.
  static std::vector<Op> Operations(size_t n) {
    if (n == kManyPieces) return {Op::kAverage};
    return {Op::kSum, Op::kAverage, Op::kMin, Op::kMax};
  }
  uint32_t ranks() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, GlooReductionTest, ::testing::Values(1, 2, 3, 4));

TEST_P(GlooReductionTest, AllReduceGivesEveryRankTheSameValues) {
  Ranks group(ranks());
  for (const size_t n : Sizes()) {
    const std::vector<std::vector<float>> before = RandomArrays(ranks(), n);
    for (const Op op : Operations(n)) {
      std::vector<std::vector<float>> arrays = before;
      group.ExpectReduced({ranks(), ReductionHeader(OperationHeader::kAllReduce, n, op)}, &arrays);
      EXPECT_EQ(CountWrong(arrays[0], before, {0, n}, op), 0) << n << " op " << int(op);
      for (const std::vector<float>& array : arrays) EXPECT_TRUE(array == arrays[0]) << n;
    }
  }
}

TEST_P(GlooReductionTest, ReduceScatterGivesEveryRankItsPart) {
  Ranks group(ranks());
  for (const size_t n : Sizes()) {
    const std::vector<std::vector<float>> before = RandomArrays(ranks(), n);
    for (const Op op : Operations(n)) {
      std::vector<std::vector<float>> arrays = before;
      group.ExpectReduced({ranks(), ReductionHeader(OperationHeader::kReduceScatter, n, op)},
                          &arrays);
      for (uint32_t rank = 0; rank < ranks(); ++rank) {
        EXPECT_EQ(CountWrong(arrays[rank], before, PartOf(n, ranks(), rank), op), 0)
            << n << " rank " << rank << " op " << int(op);
      }
    }
  }
}

TEST_P(GlooReductionTest, AWeightedMeanDoesNotReadTheValuesOfARankWithoutWeight) {
  Ranks group(ranks());
  for (const auto wire : {Collective::Wire::kF32, Collective::Wire::kBf16}) {
    const double tolerance = wire == Collective::Wire::kF32 ? 1e-6 : 0x1p-7 + 1e-6;
    for (const size_t n : Sizes()) {
      std::vector<std::vector<float>> before = RandomArrays(ranks(), n), arrays = before;
      std::vector<OperationHeader> headers;
      for (uint32_t rank = 0; rank < ranks(); ++rank) {
        headers.push_back(WeightedMeanHeader(7, n, rank == 1 ? 0 : rank + 0.5, wire));
        if (rank != 1) continue;
        arrays[rank].assign(n, std::numeric_limits<float>::quiet_NaN());
      }
      group.ExpectReduced(headers, &arrays);
      for (const std::vector<float>& array : arrays) ASSERT_TRUE(array == arrays[0]) << n;
      for (size_t i = 0; i < n; ++i) {
        double sum = 0, total = 0;
        for (uint32_t rank = 0; rank < ranks(); ++rank) {
          sum += headers[rank].weight * before[rank][i];
          total += headers[rank].weight;
        }
        ASSERT_TRUE(std::isfinite(arrays[0][i]) &&
                    std::abs(arrays[0][i] - sum / total) <= tolerance)
            << n << " at " << i << ": " << arrays[0][i] << " instead of " << sum / total;
      }
    }
  }
}

// Rank 2 ends instead of reducing.
void ExpectAnErrorWhenARankEnds(bool while_others_wait) {
  Ranks group(3, absl::Seconds(20));
  std::vector<std::vector<float>> arrays = RandomArrays(3, kManyPieces);
  const std::vector<OperationHeader> headers(
      3, ReductionHeader(OperationHeader::kAllReduce, kManyPieces, Op::kSum));
  if (!while_others_wait) group.peers(2).Leave();
  const auto results = group.Run([&](uint32_t rank) -> absl::Status {
    if (rank < 2) return group.Reduce(rank, headers, &arrays[rank]);
    while (while_others_wait && group.peers(0).WaitingFor().empty()) std::this_thread::yield();
    group.peers(2).Leave();
    return absl::OkStatus();
  });
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(results[rank].code(), absl::StatusCode::kUnavailable) << results[rank];
    // The group has ended for this rank, for the same reason.
    EXPECT_EQ(group.peers(rank).Begin(headers[rank]).code(), absl::StatusCode::kUnavailable);
  }
  // One of them noticed it itself; the other one may have its last words.
  EXPECT_TRUE(RankAtFault(results[0]) == 2u || RankAtFault(results[1]) == 2u)
      << results[0] << results[1];
}

TEST(GlooReductionFaultsTest, ARankThatEndsBeforeItBeginsEndsTheReduction) {
  ExpectAnErrorWhenARankEnds(false);
}

TEST(GlooReductionFaultsTest, ARankThatEndsWhileOthersWaitForItEndsTheReduction) {
  ExpectAnErrorWhenARankEnds(true);
}

}  // namespace
}  // namespace sluice

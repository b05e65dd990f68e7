#include "common/collective/rank_reduction.h"

#include <algorithm>
#include <cstring>

#include "common/collective/collective.h"
#include "common/collective/reduce_loops.h"

namespace sluice {
namespace {

// Elements that stay in the L1 cache while the ranks are added.
constexpr size_t kBlock = 2048;

bool Averages(const OperationHeader& h) {
  return h.kind != OperationHeader::kWeightedMean &&
         h.op == static_cast<uint32_t>(Collective::Op::kAverage);
}

float DivisorOf(absl::Span<const OperationHeader> of_ranks) {
  if (of_ranks[0].kind == OperationHeader::kWeightedMean) return TotalWeight(of_ranks);
  return Averages(of_ranks[0]) ? static_cast<float>(of_ranks.size()) : 1.0f;
}

}  // namespace

RankReduction::RankReduction(absl::Span<const OperationHeader> of_ranks, uint32_t self)
    : own_(of_ranks[self]), self_(self), divisor_(DivisorOf(of_ranks)), block_(new float[kBlock]) {
  for (const OperationHeader& h : of_ranks) {
    counts_.push_back(h.kind != OperationHeader::kWeightedMean || h.weight != 0);
  }
}

void RankReduction::Bring(const OperationHeader& own, const float* values, float* to, size_t n) {
  if (n == 0) return;
  if (own.kind != OperationHeader::kWeightedMean) {
    std::memcpy(to, values, n * sizeof(float));
  } else if (own.weight != 0) {
    BestReduceLoops().scale(static_cast<float>(own.weight), values, to, n);
  }
}

void RankReduction::Reduce(absl::Span<const float* const> inputs, float* to, float* copy,
                           size_t n) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    ReduceBlock(inputs, begin, size);
    std::memcpy(to + begin, block_.get(), size * sizeof(float));
    if (copy != nullptr) std::memcpy(copy + begin, block_.get(), size * sizeof(float));
  }
}

void RankReduction::ReduceBlock(absl::Span<const float* const> inputs, size_t begin, size_t n) {
  const ReduceLoops& loops = BestReduceLoops();
  const bool weighted = own_.kind == OperationHeader::kWeightedMean;
  const auto op = weighted ? Collective::Op::kSum : static_cast<Collective::Op>(own_.op);
  float* const block = block_.get();
  bool first = true;
  for (uint32_t rank = 0; rank < inputs.size(); ++rank) {
    if (!counts_[rank]) continue;
    const float* const values = inputs[rank] + begin;
    const bool scale = weighted && rank == self_;
    if (first) {
      if (scale) {
        loops.scale(static_cast<float>(own_.weight), values, block, n);
      } else {
        std::memcpy(block, values, n * sizeof(float));
      }
      first = false;
    } else if (op == Collective::Op::kMin) {
      loops.min(values, block, n);
    } else if (op == Collective::Op::kMax) {
      loops.max(values, block, n);
    } else if (scale) {
      loops.add_scaled(static_cast<float>(own_.weight), values, block, n);
    } else {
      loops.add(values, block, n);
    }
  }
  if (first) {
    std::fill_n(block, n, 0.0f);
  } else if (divisor_ != 1.0f) {
    loops.divide(divisor_, block, n);
  }
}

}  // namespace sluice

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
    : own_(of_ranks[self]),
      self_(self),
      divisor_(DivisorOf(of_ranks)),
      block_(new float[kBlock]),
      halves_(new uint16_t[kBlock]) {
  for (const OperationHeader& h : of_ranks) {
    // The values of a rank with weight 0 are never read: NaN in them would otherwise reach the mean
    // as 0 x NaN.
    counts_.push_back(h.kind != OperationHeader::kWeightedMean || h.weight != 0);
    weights_.push_back(static_cast<float>(h.weight));
  }
}

void RankReduction::Bring(const OperationHeader& own, const float* values, void* to, size_t n) {
  if (n == 0) return;
  if (own.kind != OperationHeader::kWeightedMean) {
    std::memcpy(to, values, n * sizeof(float));
  } else if (own.weight == 0) {
    return;  // the others do not read them
  } else if (own.in_bf16()) {
    BestReduceLoops().round(values, static_cast<uint16_t*>(to), n);
  } else {
    BestReduceLoops().scale(static_cast<float>(own.weight), values, static_cast<float*>(to), n);
  }
}

void RankReduction::Take(const OperationHeader& own, const void* result, float* to, size_t n) {
  if (n == 0) return;
  if (own.in_bf16()) {
    BestReduceLoops().widen(static_cast<const uint16_t*>(result), to, n);
  } else {
    std::memcpy(to, result, n * sizeof(float));
  }
}

void RankReduction::Reduce(absl::Span<const void* const> inputs, float* to, void* copy, size_t n) {
  const size_t wire = own_.wire_bytes();
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    if (own_.in_bf16()) {
      MeanOfHalves(inputs, begin, size);
    } else {
      ReduceBlock(inputs, begin, size);
    }
    // `to` may be one of the inputs, so the block is reduced aside and written at the end.
    std::memcpy(to + begin, block_.get(), size * sizeof(float));
    if (copy == nullptr) continue;
    const void* const block = own_.in_bf16() ? static_cast<void*>(halves_.get()) : block_.get();
    std::memcpy(static_cast<char*>(copy) + begin * wire, block, size * wire);
  }
}

void RankReduction::MeanOfHalves(absl::Span<const void* const> inputs, size_t begin, size_t n) {
  const ReduceLoops& loops = BestReduceLoops();
  float* const block = block_.get();
  uint16_t* const halves = halves_.get();
  bool first = true;
  for (uint32_t rank = 0; rank < inputs.size(); ++rank) {
    if (!counts_[rank]) continue;
    const uint16_t* values = static_cast<const uint16_t*>(inputs[rank]) + begin;
    if (rank == self_) {
      // Rounded as if they had travelled.
      loops.round(static_cast<const float*>(inputs[rank]) + begin, halves, n);
      values = halves;
    }
    // The first rank sets the block instead of adding to zeros, which would turn -0 into +0.
    (first ? loops.scale_halves : loops.add_scaled_halves)(weights_[rank], values, block, n);
    first = false;
  }
  if (first) {  // all weights are 0
    std::fill_n(block, n, 0.0f);
  } else if (divisor_ != 1.0f) {
    loops.divide(divisor_, block, n);
  }
  // This rank keeps what the others get, to the bit.
  loops.round(block, halves, n);
  loops.widen(halves, block, n);
}

void RankReduction::ReduceBlock(absl::Span<const void* const> inputs, size_t begin, size_t n) {
  const ReduceLoops& loops = BestReduceLoops();
  const bool weighted = own_.kind == OperationHeader::kWeightedMean;
  const auto op = weighted ? Collective::Op::kSum : static_cast<Collective::Op>(own_.op);
  float* const block = block_.get();
  bool first = true;
  for (uint32_t rank = 0; rank < inputs.size(); ++rank) {
    if (!counts_[rank]) continue;
    const float* const values = static_cast<const float*>(inputs[rank]) + begin;
    // The others have multiplied their values before they sent them.
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

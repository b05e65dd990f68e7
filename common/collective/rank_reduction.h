// Reduces a piece of an array over the ranks: in their order, in f32, with the weights first and
// the division last.
//
// Every engine uses it, so that engines which reduce in the same order give the same bits.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/collective/operation_header.h"

namespace sluice {

class RankReduction {
 public:
  // `of_ranks` agree (CheckAgreement).
  RankReduction(absl::Span<const OperationHeader> of_ranks, uint32_t self);

  // Copies this rank's values for another rank to reduce, multiplied by this rank's weight. A rank
  // whose weight is 0 brings nothing, and `to` is not written.
  static void Bring(const OperationHeader& own, const float* values, float* to, size_t n);

  // Reduces n elements: inputs[r] is what rank r has brought; inputs[self] are this rank's own
  // values, as they are. Writes `to`, and also `copy` unless it is null. Both may be inputs.
  void Reduce(absl::Span<const float* const> inputs, float* to, float* copy, size_t n);

  // Whether the values of a rank count: its weight is not 0.
  bool Counts(uint32_t rank) const { return counts_[rank]; }

 private:
  void ReduceBlock(absl::Span<const float* const> inputs, size_t begin, size_t n);

  const OperationHeader own_;
  const uint32_t self_;
  const float divisor_;  // 1: none
  std::vector<bool> counts_;
  std::unique_ptr<float[]> block_;
};

}  // namespace sluice

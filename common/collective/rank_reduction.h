// Reduces a piece of an array over the ranks: in their order, in f32, with the weights first and
// the division last.
//
// Values travel in wire form. In f32, a rank sends its values multiplied by its weight. In bfloat16
// (OperationHeader::in_bf16), ranks send rounded values without weights, because rounding the
// products would give other bits. The reducing rank also rounds its own values, so they get the
// same bits as the others'. Then it multiplies all values by the weights, and rounds results.
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

  // Copies this rank's values, in wire form, for another rank to reduce. A rank whose weight is 0
  // brings nothing, and `to` is not written.
  static void Bring(const OperationHeader& own, const float* values, void* to, size_t n);
  // Copies a result out of wire form.
  static void Take(const OperationHeader& own, const void* result, float* to, size_t n);

  // Reduces n elements: inputs[r] is what rank r has brought, in wire form; inputs[self] are this
  // rank's own values, f32 and as they are. Writes the result to `to`, and in wire form also to
  // `copy` unless that is null. Both may be inputs.
  void Reduce(absl::Span<const void* const> inputs, float* to, void* copy, size_t n);

  // Whether the values of a rank count: its weight is not 0.
  bool Counts(uint32_t rank) const { return counts_[rank]; }

 private:
  void ReduceBlock(absl::Span<const void* const> inputs, size_t begin, size_t n);
  void MeanOfHalves(absl::Span<const void* const> inputs, size_t begin, size_t n);

  const OperationHeader own_;
  const uint32_t self_;
  const float divisor_;  // 1: none
  std::vector<bool> counts_;
  std::vector<float> weights_;
  std::unique_ptr<float[]> block_;
  std::unique_ptr<uint16_t[]> halves_;  // the block in bfloat16
};

}  // namespace sluice

// Sums of an evaluation that add up to the same bits however the examples are split: all integers.
//
// AUC from 2^20 equal bins of the probability, ties count half. Fixed point: a weight is rounded to 2^-20, a
// loss or error to 2^-32; products are summed in 128 bits.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class EvalAccumulator {
 public:
  static constexpr int kBinBits = 20;

  EvalAccumulator();
  void Add(float logit, float label, float weight);
  // INVALID_ARGUMENT when bins are out of range (bytes from a peer).
  absl::Status Merge(const EvalSums& sums);
  EvalSums ToProto() const;
  // AUC is 0.5 when one class is absent; the others are 0 when there are no examples.
  EvalMetrics Metrics() const;

 private:
  uint64_t examples_ = 0, bad_lines_ = 0;
  std::vector<uint64_t> positive_, negative_;  // [2^20] weights
  absl::uint128 log_loss_, absolute_error_, squared_error_, weight_, correct_, probability_;
};

}  // namespace sluice

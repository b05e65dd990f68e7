// Sums of an evaluation that add up to the same bits however the examples are split: all integers.
//
// AUC from 2^20 equal bins of the probability, ties count half. Fixed point: a weight is rounded to
// 2^-20, a loss or error to 2^-32; products are summed in 128 bits. A loss is capped at 2^20, a
// weight at 2^30; sums are exact while the weights of a class add up to less than 2^42. Source of
// the AUC's standard error: Hanley and McNeil 1982, "The meaning and use of the area under a ROC
// curve", equations 1 and 2. Thread safety: one thread.
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
  // A weight that is not positive counts the example and nothing else.
  void Add(float logit, float label, float weight);
  void AddBadLines(uint64_t n) { bad_lines_ += n; }
  // INVALID_ARGUMENT when bins are out of range or out of order (bytes from a peer); then nothing
  // was added.
  absl::Status Merge(const EvalSums& sums);
  EvalSums ToProto() const;
  // There is no AUC, and auc_undefined says why, without examples of both classes. The other
  // metrics are NaN where nothing defines them: without weights, after a logit that was NaN, and
  // calibration without label 1.
  EvalMetrics Metrics() const;

 private:
  // Why no metric is defined; empty: most are.
  const char* WhyNone() const;
  void Auc(EvalMetrics* metrics) const;

  uint64_t examples_ = 0, bad_lines_ = 0, not_finite_ = 0;
  std::vector<uint64_t> positive_, negative_;  // [2^20] weights
  // Weights: 2^-20; products with a weight: 2^-52.
  absl::uint128 log_loss_ = 0, absolute_error_ = 0, squared_error_ = 0, weight_ = 0, correct_ = 0,
                probability_ = 0;
};

}  // namespace sluice

// Sums an evaluation in integers, so that the result is the same however the examples are split.
//
// The AUC uses 2^20 equal bins of the probability, and ties count half. Sums are in fixed point: a
// weight is rounded to 2^-20 and a loss or error to 2^-32, and their products are summed in 128
// bits. A loss is capped at 2^20 and a weight at 2^30. Sums are exact while the weights of a class
// add up to less than 2^42.
//
// Source: the AUC's standard error follows Hanley and McNeil 1982, "The meaning and use of the
// area under a ROC curve", equations 1 and 2.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The weights of labelled examples in 2^20 equal bins of the predicted probability. A part of
// EvalAccumulator.
//
// Memory: 50 bytes for each bin in use, up to 2^15 of them; then 16 MiB.
//
// Thread safety: one thread.
class WeightBins {
 public:
  static constexpr int kBits = 20;
  static constexpr uint32_t kBins = 1u << kBits;
  // With more bins than this in use, all of them are kept in an array.
  static constexpr size_t kFew = 1 << 15;

  struct Weights {
    uint64_t positive = 0, negative = 0;
  };

  // The weights of a bin, for the caller to add to.
  // REQUIRES: bin < kBins. The next call of At ends the reference.
  Weights& At(uint32_t bin);
  // Calls visit(bin, weights) in ascending order for each bin with a weight.
  void ForEach(absl::FunctionRef<void(uint32_t, const Weights&)> visit) const;

 private:
  absl::flat_hash_map<uint32_t, Weights> few_;
  std::vector<Weights> all_;  // [kBins], or empty while few_ is in use
};

class EvalAccumulator {
 public:
  // An example whose weight is not positive is only counted.
  void Add(float logit, float label, float weight);
  void AddBadLines(uint64_t n) { bad_lines_ += n; }
  // INVALID_ARGUMENT, adding nothing, when bins (bytes from a peer) are out of range or out of
  // order.
  absl::Status Merge(const EvalSums& sums);
  EvalSums ToProto() const;
  // Without examples of both classes there is no AUC, and auc_undefined says why. The other metrics
  // are NaN where they are undefined: without weights, after a NaN logit, and calibration without
  // label 1.
  EvalMetrics Metrics() const;

 private:
  // Returns why no metric is defined; empty when metrics are defined.
  const char* WhyNone() const;
  void Auc(EvalMetrics* metrics) const;

  uint64_t examples_ = 0, bad_lines_ = 0, not_finite_ = 0;
  WeightBins bins_;
  // Units: weights in 2^-20, products with a weight in 2^-52.
  absl::uint128 log_loss_ = 0, absolute_error_ = 0, squared_error_ = 0, weight_ = 0, correct_ = 0,
                probability_ = 0;
};

}  // namespace sluice

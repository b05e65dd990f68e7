// Sums an evaluation in integers, so that the result is the same however the examples are split.
//
// The AUC uses 2^20 equal bins of the probability, and ties count half. Sums are in fixed point: a
// weight is rounded to 2^-60 and a loss or error to 2^-32, and their products are summed in 192
// bits. A loss is capped at 2^20 and a weight at 2^40. Sums are exact for 2^28 examples of the
// greatest weight, and for more of smaller ones.
//
// Bins have 64 bits, in units of 2^-20, while all weights are multiples of that and add up to less
// than 2^42. Otherwise they have 128 bits, in units of 2^-60. Both are exact, so the metrics do not
// depend on how the examples are split.
//
// Source: the AUC's standard error follows Hanley and McNeil 1982, "The meaning and use of the
// area under a ROC curve", equations 1 and 2.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
// Memory: with sums of 8 bytes, 50 bytes for each bin in use, up to 2^15 of them; then 16 MiB.
// Twice as much with sums of 16 bytes.
//
// Thread safety: one thread.
template <typename Sum>
class BinSums {
 public:
  static constexpr int kBits = 20;
  static constexpr uint32_t kBins = 1u << kBits;
  // With more bins than this in use, all of them are kept in an array.
  static constexpr size_t kFew = 1 << 15;

  struct Weights {
    Sum positive = 0, negative = 0;
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
using WeightBins = BinSums<uint64_t>;
using FineBins = BinSums<absl::uint128>;

// An unsigned sum of 192 bits. A part of EvalAccumulator.
struct WideSum {
  uint64_t low = 0, high = 0, highest = 0;

  void Add(const WideSum& other);
  // REQUIRES: the product has at most 192 bits.
  void AddProduct(absl::uint128 a, uint64_t b);
  double ToDouble() const;
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
  static constexpr int kCalibrationBins = 20;
  // Groups the examples by probability, into about kCalibrationBins groups of equal weight. Fewer
  // when many examples have the same probability; none where no metric is defined.
  std::vector<CalibrationBin> Calibration() const;

 private:
  // Returns why no metric is defined; empty when metrics are defined.
  const char* WhyNone() const;
  void Auc(EvalMetrics* metrics) const;
  void AddToBin(uint32_t bin, bool positive, absl::uint128 weight);
  // Goes over to bins of 128 bits, unless they are in use.
  void Refine();

  uint64_t examples_ = 0, bad_lines_ = 0, not_finite_ = 0;
  WeightBins bins_;                 // empty once fine_ is in use
  std::unique_ptr<FineBins> fine_;  // null: not in use
  // Units: weights in 2^-60, products with a weight in 2^-92.
  WideSum log_loss_, absolute_error_, squared_error_, weight_, correct_, probability_;
};

}  // namespace sluice

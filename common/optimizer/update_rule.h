// The update rules, in one implementation for pservers (sync, async) and workers (Geo).
//
// Source: torch.optim for SGD, Momentum (its SGD with momentum), Adam (Kingma and Ba 2015) and
// AdaGrad (Duchi et al. 2011); McMahan et al. 2013, algorithm 1, for FTRL-Proximal.
//
// Thread safety: immutable. Apply may run on many threads, on disjoint memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/optimizer/kernels.h"
#include "proto/config.pb.h"

namespace sluice {

class UpdateRule {
 public:
  // The largest number of state arrays that a rule has.
  static constexpr int kMaxState = 2;

  virtual ~UpdateRule() = default;

  // INVALID_ARGUMENT names the field and the fix. A config without a rule is refused; WithDefaults
  // fills one in.
  static absl::StatusOr<std::unique_ptr<const UpdateRule>> Create(const OptimizerConfig& config);

  // Floats of state per parameter: SGD 0, Momentum 1, Adam 2, AdaGrad 1, FTRL 2.
  virtual int state_floats() const = 0;

  // Fills the state of `n` fresh parameters; `state` holds state_floats() arrays of [n].
  virtual void InitState(float* const* state, size_t n) const = 0;

  // Makes one update of n consecutive parameters.
  //   weights   [n], updated in place
  //   state     state_floats() arrays of [n], updated in place
  //   gradient  [n], aggregated; clipped by value and by row norm into memory of the calling thread
  //   row       length of a row for clip_row_norm; n is a multiple of it
  //   rate      learning rate after the schedule
  //   count     updates of this block or row including this one (1 at the first), for bias
  //   correction
  // For a sparse row, n and row are the column group's dim.
  void Apply(float* weights, float* const* state, const UnalignedFloat* gradient, size_t n,
             size_t row, float rate, uint64_t count) const;

  // The step that Apply gives the formula of each element (rule_formulas.h), for callers that
  // compute elsewhere. kNothing means that the update changes nothing.
  virtual RuleStep StepAt(float rate, uint64_t count) const = 0;
  float clip_value() const { return clip_value_; }        // 0: no clipping
  float clip_row_norm() const { return clip_row_norm_; }  // 0: no clipping

 protected:
  explicit UpdateRule(const OptimizerConfig& config);
  // Applies the rule itself, to a gradient that is clipped and does not yet contain weight decay.
  virtual void Update(float* weights, float* const* state, const UnalignedFloat* gradient, size_t n,
                      float rate, uint64_t count) const = 0;
  const Kernels& kernels_;  // BestKernels() at the time of creation
  const float weight_decay_;

 private:
  const float clip_value_;
  const float clip_row_norm_;
};

// Returns `config` with every absent field set to its default (Adam with rate 0.001 when there is
// no rule).
OptimizerConfig WithDefaults(const OptimizerConfig& config);

}  // namespace sluice

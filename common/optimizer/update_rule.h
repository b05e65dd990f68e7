// The update rules, in one implementation for pservers (sync, async) and workers (Geo).
//
// rules.h lists the rules. Each file in rules/ holds one rule, with its formula and source.
//
// Thread safety: immutable. Apply may run on many threads, on disjoint memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/optimizer/kernels.h"
#include "proto/config.pb.h"

namespace sluice {

class UpdateRule {
 public:
  // The largest number of state arrays that a rule has.
  static constexpr int kMaxState = kMaxRuleState;

  virtual ~UpdateRule() = default;

  // INVALID_ARGUMENT names the field and the fix. A config without a rule is refused; WithDefaults
  // fills one in.
  static absl::StatusOr<std::unique_ptr<const UpdateRule>> Create(const OptimizerConfig& config);

  // Floats of state per parameter.
  int state_floats() const { return facts_.state_floats; }

  // Fills the state of `n` fresh parameters; `state` holds state_floats() arrays of [n].
  void InitState(float* const* state, size_t n) const;

  // Makes one update of n consecutive parameters.
  //   weights   [n], updated in place
  //   state     state_floats() arrays of [n], updated in place
  //   gradient  [n], aggregated; clipped by value and by row norm into memory of the calling thread
  //   row       length of a row for clip_row_norm; n is a multiple of it
  //   rate      learning rate after the schedule
  //   count     updates of this block or row including this one (1 at the first), for bias
  //             correction
  // For a sparse row, n and row are the column group's dim.
  // Returns false if a new weight or float of state is NaN or infinite; all are updated even so.
  bool Apply(float* weights, float* const* state, const UnalignedFloat* gradient, size_t n,
             size_t row, float rate, uint64_t count) const;

  // The step that Apply gives the formula of each element (rule_formulas.h). Callers that
  // compute elsewhere use it too. kNothing means that the update changes nothing.
  virtual RuleStep StepAt(float rate, uint64_t count) const = 0;
  // Whether steps of one rate differ by count, in RuleStep::of_count.
  bool step_depends_on_count() const { return facts_.step_depends_on_count; }
  float clip_value() const { return clip_value_; }        // 0: no clipping
  float clip_row_norm() const { return clip_row_norm_; }  // 0: no clipping

 protected:
  struct Facts {
    int state_floats;
    float initial_state[kMaxState];
    bool step_depends_on_count;
  };
  UpdateRule(const OptimizerConfig& config, const Facts& facts);

 private:
  const Kernels& kernels_;  // BestKernels() at the time of creation
  const Facts facts_;
  const float clip_value_;
  const float clip_row_norm_;
};

// Returns `config` with every absent field set to its default (Adam with rate 0.001 when there is
// no rule).
OptimizerConfig WithDefaults(const OptimizerConfig& config);

// The names of all rules: the fields of OptimizerConfig's oneof, in its order.
const std::vector<std::string>& RuleNames();

// The name of the config's rule, "none" if it has none.
std::string RuleName(const OptimizerConfig& config);

}  // namespace sluice

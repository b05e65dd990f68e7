// The update rules behind UpdateRule::Create.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/optimizer/update_rule.h"

namespace sluice::internal {

using RuleOr = absl::StatusOr<std::unique_ptr<const UpdateRule>>;

// `config` must have its defaults filled in, and valid values in the fields that all rules share.
// INVALID_ARGUMENT names the field of the rule and the fix.
RuleOr CreateSgd(const OptimizerConfig& config);
RuleOr CreateMomentum(const OptimizerConfig& config);
RuleOr CreateAdam(const OptimizerConfig& config);
RuleOr CreateAdagrad(const OptimizerConfig& config);
RuleOr CreateFtrl(const OptimizerConfig& config);

// OK when the value is finite and low <= value.
absl::Status RequireAtLeast(const char* field, float value, float low);
// OK when 0 <= value < 1.
absl::Status RequireFraction(const char* field, float value);
// OK when the value is finite and 0 < value. The message says `why`.
absl::Status RequireAboveZero(const char* field, float value, const char* why);

}  // namespace sluice::internal

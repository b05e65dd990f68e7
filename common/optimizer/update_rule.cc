#include "common/optimizer/update_rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/learning_rate.h"
#include "common/optimizer/rules.h"

namespace sluice {
namespace internal {

absl::Status RequireAtLeast(const char* field, float value, float low) {
  if (std::isfinite(value) && value >= low) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be finite and at least ", low, "; it is ", value));
}

absl::Status RequireFraction(const char* field, float value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be at least 0 and below 1; it is ", value));
}

absl::Status RequireAboveZero(const char* field, float value, const char* why) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be finite and above 0 (", why, "); it is ", value));
}

}  // namespace internal

namespace {

absl::Status ValidateCommon(const OptimizerConfig& config) {
  SLUICE_RETURN_IF_ERROR(internal::RequireAtLeast("learning_rate", config.learning_rate(), 0));
  SLUICE_RETURN_IF_ERROR(internal::RequireAtLeast("weight_decay", config.weight_decay(), 0));
  SLUICE_RETURN_IF_ERROR(internal::RequireAtLeast("clip_value", config.clip_value(), 0));
  SLUICE_RETURN_IF_ERROR(internal::RequireAtLeast("clip_row_norm", config.clip_row_norm(), 0));
  return ValidateSchedule(config.schedule());
}

void ClipValues(const UnalignedFloat* __restrict in, size_t n, float limit, float* __restrict out) {
  for (size_t i = 0; i < n; ++i) out[i] = formula::ClipValue(in[i], limit);
}

void ClipRow(float* row, size_t n, float limit) {
  const float scale =
      formula::ClipScale(formula::SquaredNorm([row](size_t i) { return row[i]; }, n), limit);
  if (scale == 1) return;
  for (size_t i = 0; i < n; ++i) row[i] *= scale;
}

// Memory for a clipped gradient. It grows to the largest block that the thread has met and stays,
// so that an update allocates nothing.
float* Scratch(size_t n) {
  static thread_local std::vector<float> scratch;
  if (scratch.size() < n) scratch.resize(n);
  return scratch.data();
}

}  // namespace

UpdateRule::UpdateRule(const OptimizerConfig& config)
    : kernels_(BestKernels()),
      weight_decay_(config.weight_decay()),
      clip_value_(config.clip_value()),
      clip_row_norm_(config.clip_row_norm()) {}

void UpdateRule::Apply(float* weights, float* const* state, const UnalignedFloat* gradient,
                       size_t n, size_t row, float rate, uint64_t count) const {
  if (clip_value_ > 0 || clip_row_norm_ > 0) {
    float* clipped = Scratch(n);
    if (clip_value_ > 0) {
      ClipValues(gradient, n, clip_value_, clipped);
    } else {
      std::memcpy(clipped, gradient, n * sizeof(float));
    }
    if (clip_row_norm_ > 0 && row > 0) {
      for (size_t i = 0; i < n; i += row) {
        ClipRow(clipped + i, std::min(row, n - i), clip_row_norm_);
      }
    }
    gradient = clipped;
  }
  Update(weights, state, gradient, n, rate, count);
}

absl::StatusOr<std::unique_ptr<const UpdateRule>> UpdateRule::Create(const OptimizerConfig& given) {
  if (given.rule_case() == OptimizerConfig::RULE_NOT_SET) {
    return absl::InvalidArgumentError(
        "the optimizer names no rule: set one of sgd, momentum, adam, adagrad, ftrl");
  }
  const OptimizerConfig config = WithDefaults(given);
  SLUICE_RETURN_IF_ERROR(ValidateCommon(config));
  switch (config.rule_case()) {
    case OptimizerConfig::kSgd:
      return internal::CreateSgd(config);
    case OptimizerConfig::kMomentum:
      return internal::CreateMomentum(config);
    case OptimizerConfig::kAdam:
      return internal::CreateAdam(config);
    case OptimizerConfig::kAdagrad:
      return internal::CreateAdagrad(config);
    case OptimizerConfig::kFtrl:
      return internal::CreateFtrl(config);
    case OptimizerConfig::RULE_NOT_SET:
      break;
  }
  return absl::InternalError(
      absl::StrCat("there is no update rule ", static_cast<int>(config.rule_case())));
}

}  // namespace sluice

#include "common/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr double kPi = 3.14159265358979323846;
// A config may come here without its defaults, so LearningRateAt falls back on them as well.
constexpr float kDefaultPower = 1, kDefaultMultiplier = 2, kDefaultDecay = 1;

absl::Status RequirePositive(const char* field, uint64_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule.", field, " must be at least 1; it is 0 or absent"));
}

absl::Status RequireRange(const char* field, float value, float low, const char* what) {
  if (std::isfinite(value) && value >= low) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule.", field, " must be ", what, "; it is ", value));
}

template <typename Decay>
absl::Status ValidateDecay(const std::string& name, const Decay& decay) {
  SLUICE_RETURN_IF_ERROR(RequirePositive((name + ".steps").c_str(), decay.steps()));
  // Absent reads as 0. For the exponential it would stop all training after the first steps.
  if (std::isfinite(decay.rate()) && decay.rate() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("schedule.", name,
                                                 ".rate must be finite and above 0 (it says how "
                                                 "fast the learning rate decays); it is ",
                                                 decay.rate(),
                                                 decay.rate() == 0 ? " or absent" : ""));
}

absl::Status ValidateCosineRestarts(const LearningRateSchedule::CosineRestarts& cosine) {
  SLUICE_RETURN_IF_ERROR(RequirePositive("cosine_restarts.first_steps", cosine.first_steps()));
  if (cosine.has_multiplier()) {
    SLUICE_RETURN_IF_ERROR(RequireRange("cosine_restarts.multiplier", cosine.multiplier(), 1,
                                        "finite and at least 1 (periods may not shrink)"));
  }
  if (cosine.has_decay()) {
    SLUICE_RETURN_IF_ERROR(
        RequireRange("cosine_restarts.decay", cosine.decay(), 0, "finite and not negative"));
  }
  return RequireRange("cosine_restarts.end", cosine.end(), 0, "finite and not negative");
}

absl::Status ValidatePolynomial(const LearningRateSchedule::Polynomial& polynomial) {
  SLUICE_RETURN_IF_ERROR(RequirePositive("polynomial.steps", polynomial.steps()));
  if (polynomial.has_power()) {
    SLUICE_RETURN_IF_ERROR(
        RequireRange("polynomial.power", polynomial.power(), 0, "finite and not negative"));
  }
  return RequireRange("polynomial.end", polynomial.end(), 0, "finite and not negative");
}

// s / steps; only whole periods count with `staircase`. A double is exact up to 2^53 steps, more
// than any job makes.
template <typename Decay>
double Periods(const Decay& decay, double s) {
  const double periods = s / static_cast<double>(decay.steps());
  return decay.staircase() ? std::floor(periods) : periods;
}

double Annealed(double from, double end, double fraction) {
  return end + (from - end) * (1 + std::cos(kPi * fraction)) / 2;
}

// Period i begins at step first * (m^i - 1) / (m - 1), or first * i when m = 1.
double CosineRestartsAt(const LearningRateSchedule::CosineRestarts& cosine, double base, double s) {
  const double first = static_cast<double>(cosine.first_steps());
  const double m = cosine.has_multiplier() ? cosine.multiplier() : kDefaultMultiplier;
  const double decay = cosine.has_decay() ? cosine.decay() : kDefaultDecay;
  auto begin = [&](double i) {
    return m == 1 ? first * i : first * (std::pow(m, i) - 1) / (m - 1);
  };
  // Solves begin(i) = s for i. log1p keeps the digits when m is just above 1.
  double i =
      m == 1 ? std::floor(s / first) : std::floor(std::log1p(s / first * (m - 1)) / std::log(m));
  // The logarithm may miss the border by one period in either direction.
  if (i > 0 && begin(i) > s) --i;
  if (begin(i + 1) <= s) ++i;
  const double length = begin(i + 1) - begin(i);
  // Rounding must not carry the cosine past its end, where it would rise again.
  const double fraction = std::min(1.0, (s - begin(i)) / length);
  return Annealed(base * std::pow(decay, i), cosine.end(), fraction);
}

double NoamAt(const LearningRateSchedule::Noam& noam, double base, double s) {
  // The formula counts from 1; at step 0 it would divide by 0.
  const double step = s + 1;
  const double warmup = static_cast<double>(noam.warmup());
  return base / std::sqrt(static_cast<double>(noam.model_dim())) *
         std::min(1 / std::sqrt(step), step * std::pow(warmup, -1.5));
}

double PolynomialAt(const LearningRateSchedule::Polynomial& p, double base, double s) {
  const double steps = static_cast<double>(p.steps());
  const double power = p.has_power() ? p.power() : kDefaultPower;
  // After `steps` the rate stays at the end: a job may train longer than its schedule.
  return (base - p.end()) * std::pow(1 - std::min(s, steps) / steps, power) + p.end();
}

double CosineAt(const LearningRateSchedule::Cosine& cosine, double base, double s) {
  const double steps = static_cast<double>(cosine.steps());
  return Annealed(base, cosine.end(), std::min(s, steps) / steps);
}

}  // namespace

void FillScheduleDefaults(LearningRateSchedule* schedule) {
  if (schedule->has_polynomial() && !schedule->polynomial().has_power()) {
    schedule->mutable_polynomial()->set_power(kDefaultPower);
  }
  if (schedule->has_cosine_restarts()) {
    auto* cosine = schedule->mutable_cosine_restarts();
    if (!cosine->has_multiplier()) cosine->set_multiplier(kDefaultMultiplier);
    if (!cosine->has_decay()) cosine->set_decay(kDefaultDecay);
  }
}

absl::Status ValidateSchedule(const LearningRateSchedule& schedule) {
  if (!(schedule.warmup_start() >= 0 && schedule.warmup_start() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule.warmup_start must be between 0 and 1 (the fraction of the learning "
                     "rate that warm-up begins with); it is ",
                     schedule.warmup_start()));
  }
  // Options without effect are refused: usually a second option was forgotten.
  if (schedule.warmup_start() > 0 && schedule.warmup_steps() == 0) {
    return absl::InvalidArgumentError(
        "schedule.warmup_start has no effect without schedule.warmup_steps: set both or neither");
  }
  switch (schedule.kind_case()) {
    case LearningRateSchedule::kExponential:
      return ValidateDecay("exponential", schedule.exponential());
    case LearningRateSchedule::kInverseTime:
      return ValidateDecay("inverse_time", schedule.inverse_time());
    case LearningRateSchedule::kNaturalExponential:
      return ValidateDecay("natural_exponential", schedule.natural_exponential());
    case LearningRateSchedule::kNoam:
      SLUICE_RETURN_IF_ERROR(RequirePositive("noam.warmup", schedule.noam().warmup()));
      return RequirePositive("noam.model_dim", schedule.noam().model_dim());
    case LearningRateSchedule::kPolynomial:
      return ValidatePolynomial(schedule.polynomial());
    case LearningRateSchedule::kCosine:
      SLUICE_RETURN_IF_ERROR(RequirePositive("cosine.steps", schedule.cosine().steps()));
      return RequireRange("cosine.end", schedule.cosine().end(), 0, "finite and not negative");
    case LearningRateSchedule::kCosineRestarts:
      return ValidateCosineRestarts(schedule.cosine_restarts());
    case LearningRateSchedule::kConstant:
    case LearningRateSchedule::KIND_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

float LearningRateAt(const LearningRateSchedule& schedule, float base_rate, uint64_t step) {
  const double base = base_rate;
  if (step < schedule.warmup_steps()) {
    const double start = schedule.warmup_start();
    return static_cast<float>(base * (start + (1 - start) * static_cast<double>(step) /
                                                  static_cast<double>(schedule.warmup_steps())));
  }
  // The schedule begins after the warm-up, so that its first steps are not lost to low rates.
  const double s = static_cast<double>(step - schedule.warmup_steps());
  double rate = base;
  switch (schedule.kind_case()) {
    case LearningRateSchedule::kExponential:
      rate = base * std::pow(schedule.exponential().rate(), Periods(schedule.exponential(), s));
      break;
    case LearningRateSchedule::kInverseTime:
      rate = base / (1 + schedule.inverse_time().rate() * Periods(schedule.inverse_time(), s));
      break;
    case LearningRateSchedule::kNaturalExponential:
      rate = base * std::exp(-schedule.natural_exponential().rate() *
                             Periods(schedule.natural_exponential(), s));
      break;
    case LearningRateSchedule::kNoam:
      rate = NoamAt(schedule.noam(), base, s);
      break;
    case LearningRateSchedule::kPolynomial:
      rate = PolynomialAt(schedule.polynomial(), base, s);
      break;
    case LearningRateSchedule::kCosine:
      rate = CosineAt(schedule.cosine(), base, s);
      break;
    case LearningRateSchedule::kCosineRestarts:
      rate = CosineRestartsAt(schedule.cosine_restarts(), base, s);
      break;
    case LearningRateSchedule::kConstant:
    case LearningRateSchedule::KIND_NOT_SET:
      break;
  }
  return static_cast<float>(rate);
}

}  // namespace sluice

// Learning-rate schedules, which give the rate as a function of the schedule step.
//
// Source: the formulas of LearningRateSchedule in proto/config.proto.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// Sets absent fields to the values that proto/config.proto promises.
void FillScheduleDefaults(LearningRateSchedule* schedule);

// INVALID_ARGUMENT names the field and the fix (zero steps, negative rate, ...).
absl::Status ValidateSchedule(const LearningRateSchedule& schedule);

// The rate at `step` (0 at the first update) for a base rate. Computed in double.
float LearningRateAt(const LearningRateSchedule& schedule, float base_rate, uint64_t step);

}  // namespace sluice

// The day of a job's data (DataConfig.day).
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace sluice {

// Days since 1970-01-01 of a text YYYY-MM-DD. INVALID_ARGUMENT says what is wrong with another one.
absl::StatusOr<int32_t> ParseDataDay(absl::string_view text);
std::string FormatDataDay(int32_t day);

// The one value YYYY-MM-DD that `day=` has in the paths of train_files; empty when there is none,
// or more than one.
std::string DayInPaths(const DataConfig& data);

// Whether a table of the job counts days.
bool NeedsDataDay(const JobConfig& job);

}  // namespace sluice

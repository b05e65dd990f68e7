// Reads a bounded part of Parquet files and collects what their columns hold (table_profile.h).
//
// Types say more than text: dates are dates, columns with a dictionary hold names, lists and maps
// have several values.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/profile/table_profile.h"

namespace sluice {

// Whether the first file that is not empty begins as a Parquet file. Errors name the file.
absl::StatusOr<bool> BeginsAsParquet(const std::vector<std::string>& files, Env* env);

// As ProfileTable, which calls it.
absl::StatusOr<TableProfile> ProfileParquet(const std::vector<std::string>& files,
                                            const ProfileLimits& limits, Env* env);

}  // namespace sluice

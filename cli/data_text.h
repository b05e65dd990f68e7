// Formats the summary of a job's training data, which is printed at the end of the job.
//
// Thread safety: a pure function.
#pragma once

#include <string>

#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Returns the share of label 1, the features with the most missing values, and those with the most
// values outside their vocabulary. Lines have at most 80 characters, unless feature names are
// longer. Returns "" when nothing was summarized. Omits the features when `config` has a different
// number of them.
std::string DataText(const DataSummary& data, const JobConfig& config);

}  // namespace sluice::cli

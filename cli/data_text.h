// The summary of a job's training data, as a terminal shows it at the end of the job.
//
// Thread safety: a pure function.
#pragma once

#include <string>

#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Lines of at most 80 characters, unless names of features are longer: the share of label 1, then
// the features with the most missing values and those with the most values outside of their
// vocabulary. "" when nothing was summarized; no line on features when `config` has others.
std::string DataText(const DataSummary& data, const JobConfig& config);

}  // namespace sluice::cli

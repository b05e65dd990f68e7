// Merges the data summaries of pieces and ranks (DataSummary) and warns about suspicious data.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Adds the summary of other text: sums the counts and unites the bits.
void AddSummary(const DataSummary& from, DataSummary* to);

// INVALID_ARGUMENT when a summary (bytes from a peer) has more features, or more values of a
// vocabulary or of the label, than the job.
absl::Status CheckSummary(const JobConfig& job, const DataSummary& summary);

// Whether the vocabulary or label value with index `value` has occurred.
bool HasOccurred(const std::string& seen, size_t value);

// Warnings about the training data, one line each: a class without examples, a feature without
// values, or vocabulary values that never occur.
std::vector<std::string> WarningsOfTraining(const JobConfig& job, const DataSummary& training);
// Warnings about values of data.label that occur neither in the training nor in the evaluation
// data. An empty summary stands for no data.
std::vector<std::string> WarningsOfLabel(const JobConfig& job, const DataSummary& training,
                                         const DataSummary& evaluation);

}  // namespace sluice

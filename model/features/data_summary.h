// Sums of what data holds (DataSummary): of pieces and ranks together, and what is odd about them.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Adds what other text held: counts are added, bits are united.
void AddSummary(const DataSummary& from, DataSummary* to);

// INVALID_ARGUMENT when a summary (bytes from a peer) has more features, or more values of a
// vocabulary or of the label, than the job.
absl::Status CheckSummary(const JobConfig& job, const DataSummary& summary);

// Of vocabulary value (or label value) `value`.
bool HasOccurred(const std::string& seen, size_t value);

// What a person should look at in the training data, a line each: a class or a feature without
// values, and values of a vocabulary that never occur.
std::vector<std::string> WarningsOfTraining(const JobConfig& job, const DataSummary& training);
// Values of data.label that occur neither in the training nor in the evaluation data; an empty
// summary stands for none.
std::vector<std::string> WarningsOfLabel(const JobConfig& job, const DataSummary& training,
                                         const DataSummary& evaluation);

}  // namespace sluice

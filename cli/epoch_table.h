// Formats the epochs of a job as a table, and the figures of an evaluation as text.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Every line of the table fits in this many columns.
constexpr size_t kTableWidth = 80;

// Returns a header and one line per epoch, numbered from 1. Columns are as wide as their widest
// cell. Returns "" when there are no epochs.
std::string EpochTable(const google::protobuf::RepeatedPtrField<EpochResult>& epochs);

// "0.91426"; "-" when it is undefined.
std::string AucText(const EvalMetrics& eval, int decimals);
// "final: AUC 0.91426 (standard error 0.00226) on 16,281 examples\n       log loss ...\n", and a
// note when the AUC is undefined, or when its binning error is large relative to its standard
// error.
std::string EvalText(const EvalMetrics& eval);

}  // namespace sluice::cli

// The epochs of a job as a table, and the figures of an evaluation as text.
//
// Thread safety: pure.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Columns of a terminal that every line of the table fits in.
constexpr size_t kTableWidth = 80;

// A head and a line an epoch, numbered from 1, with right-aligned columns as wide as what they
// hold. "" without epochs.
std::string EpochTable(const google::protobuf::RepeatedPtrField<EpochResult>& epochs);

// "0.91426"; "-" when it is undefined.
std::string AucText(const EvalMetrics& eval, int decimals);
// "final: AUC 0.91426 (standard error 0.00226) on 16,281 examples\n       log loss ...\n", and a
// note when the AUC is undefined, or when its binning error is not small beside its standard error.
std::string EvalText(const EvalMetrics& eval);

}  // namespace sluice::cli

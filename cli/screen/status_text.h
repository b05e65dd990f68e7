// Formats the status of a cluster and the results of its jobs for people: members and jobs, epochs,
// evaluations and the training data.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Members, then jobs with tables, allocation, progress and what they wait for. With `colours`, what
// needs attention is red or yellow, and what is done green.
std::string StatusText(const ClusterStatus& status, bool colours = false);
// The same of one job, with each of its dense tables; "" when the status has no such job.
std::string StatusOfJob(const ClusterStatus& status, const std::string& job_id,
                        bool colours = false);

// Every line of the table fits in this many columns.
constexpr size_t kTableWidth = 80;

// The table of epochs, row by row as they end. Columns are as wide as their widest cell so far.
class EpochRows {
 public:
  // Returns the epoch's line, the first time with the header before it.
  std::string Next(const EpochResult& epoch);

 private:
  std::vector<size_t> widths_;
};

// "0.91426"; "-" when it is undefined.
std::string AucText(const EvalMetrics& eval, int decimals);
// The metrics of the user's program, in lines of at most kTableWidth columns that begin with
// `indent` spaces: "  ndcg 0.71234, hits 12.000\n"; "" without any. A long name may have a line of
// its own.
std::string UserMetricsText(const EvalMetrics& eval, size_t indent);
// "ndcg 0.71234"; "ndcg -" when it is undefined.
std::string UserMetricText(const NamedValue& metric);
// "final: AUC 0.91426 (standard error 0.00226) on 16,281 examples\n       log loss ...\n", and a
// note when the AUC is undefined, or when its binning error is large relative to its standard
// error.
std::string EvalText(const EvalMetrics& eval);

// Returns the share of label 1, the features with the most missing values, and those with the most
// values outside their vocabulary. Lines have at most 80 characters, unless feature names are
// longer. Returns "" when nothing was summarized. Omits the features when `config` has a different
// number of them.
std::string DataText(const DataSummary& data, const JobConfig& config);

}  // namespace sluice::cli

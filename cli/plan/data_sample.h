// Copies the first lines or rows of a job's training data, so that a measurement reads little of
// it.
//
// Thread safety: free function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace sluice::plan {

struct DataSample {
  std::vector<std::string> files;    // in the folder
  std::vector<std::string> sources;  // the file of the data that each of them begins as
  // A pattern for each of the files, below whose wildcard are the folders `key=value` that are
  // columns of its source (partition_folders.h).
  std::vector<std::string> patterns;
  double lines = 0;   // or rows
  double share = 1;   // of the data, by bytes; an estimate for compressed files that are cut
  bool whole = true;  // all lines of all files
};

// Copies whole lines of the files, in order, until the copies have `bytes` of text. Each copy
// begins as its file does, with its header line, and has the same line numbers. Statuses as
// ExpandFiles and TextReader.
absl::StatusOr<DataSample> CopyFirstLines(const DataConfig& data, const std::string& folder,
                                          uint64_t bytes);

// The same for a job on any format: of formats of rows, copies of those columns that the job uses,
// until they have so many bytes uncompressed.
absl::StatusOr<DataSample> CopyBeginning(const JobConfig& job, const std::string& folder,
                                         uint64_t bytes);

// Replaces the names of copies in the message by those of the files that they are of.
absl::Status WithSourceNames(const absl::Status& status, const DataSample& sample);

}  // namespace sluice::plan

// Decides what evaluates a job: files by their names, or a part of the lines or rows of one file.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/profile/table_profile.h"

namespace sluice {

struct FileRoles {
  std::vector<std::string> train, eval;
  std::vector<std::string> unused;  // test files where others are for validation
  std::string why;                  // a sentence; empty when `eval` is
};

// A file whose name says so evaluates (valid, eval, dev, holdout; else test); else the last one, or
// the smallest one when the last one is most of the data. One file alone trains.
FileRoles RolesOf(const std::vector<TableProfile::File>& files);

struct HeldOut {
  uint64_t train_lines = 0, eval_lines = 0;
  uint64_t too_long = 0;  // longer than LineReader::kMaxLineBytes, and in neither file
};

// Copies the lines of the file, decompressed, to two files, about `share` of them to `eval`. A hash
// of a line's number decides, so that it is the same each time. A header goes to both, comments to
// neither. Existing files are replaced. After an error neither file is new.
absl::StatusOr<HeldOut> HoldOutLines(const std::string& file, const TextShape& shape, double share,
                                     const std::string& train, const std::string& eval, Env* env);

// Copies the rows of a Parquet file, with all columns, to two files, about `share` of them to
// `eval`. A hash of their numbers decides; in a large file, runs of neighbours go together, of
// which there are 10,000 at least. Row groups have as many rows as in the file, about. Existing
// files are replaced. After an error neither file is new.
//
// Memory: two row groups that are being written, compressed, and a batch of rows.
absl::StatusOr<HeldOut> HoldOutRows(const std::string& file, double share, const std::string& train,
                                    const std::string& eval, Env* env);

}  // namespace sluice

// Makes a model or checkpoint without the rows whose keys a file has.
//
// Memory: 8 bytes a key of the file, and what RewriteFolder needs.
//
// Thread safety: a free function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_list.h"
#include "model/table_files/folder_rewrite.h"

namespace sluice {

struct DeleteOptions {
  std::string folder;  // a model or checkpoint
  std::string table;   // "": that of `feature`, or the only sparse one
  std::string output;  // a new folder; "": nothing is written, and the report says what would go
  // What to delete. Text: a line is a key of the table, or with `feature` a value. Parquet and
  // .npz: the columns of table_columns.h that name rows; .npy: integers, as the lines of a text.
  std::vector<std::string> files;
  std::string feature;  // by whose rule values become keys
};

struct DeleteReport {
  std::string table;
  RewriteReport rewrite;
  uint64_t keys = 0;   // different ones of the files
  uint64_t found = 0;  // of which the table had a row that had not expired
  // Several values may have one key, by the feature's hash_buckets. So rows of values that are not
  // in the files may have gone as well.
  bool folded = false;
  // Values without a key, since the feature does not have them; and the first of them.
  uint64_t unmatched = 0;
  std::vector<std::string> examples;
};

// INVALID_ARGUMENT names the file and the line or row that has no key, or the option, with the fix.
// Other errors as RewriteFolder.
absl::StatusOr<DeleteReport> DeleteRows(const DeleteOptions& options, const ModelList& models,
                                        Env* env);

}  // namespace sluice

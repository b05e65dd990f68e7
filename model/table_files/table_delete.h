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
#include "model/table_files/key_files.h"

namespace sluice {

struct DeleteOptions {
  std::string folder;  // a model or checkpoint
  std::string table;   // "": that of `feature`, or the only sparse one
  std::string output;  // a new folder; "": nothing is written, and the report says what would go
  std::vector<std::string> files;  // what to delete (KeyFiles)
  std::string feature;             // by whose rule values become keys
};

struct DeleteReport {
  std::string table;
  RewriteReport rewrite;
  NamedKeys named;     // by the files
  uint64_t found = 0;  // keys of which the table had a row that had not expired
};

// INVALID_ARGUMENT names the file and the line or row that has no key, or the option, with the fix.
// Other errors as RewriteFolder.
absl::StatusOr<DeleteReport> DeleteRows(const DeleteOptions& options, const ModelList& models,
                                        Env* env);

}  // namespace sluice

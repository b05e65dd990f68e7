// Makes a model, or a checkpoint, from the rows of a file: one table of it comes from the file, all
// others from another model, or they have the initial values of a job.
//
// The rows are divided by shard in a file without a name (row_spool.h), so that a shard at a time
// is sorted and written. The folder is no model before the manifest, its last file, is in force.
//
// Memory: the rows of one shard up to most_shard_bytes, else 16 bytes for each and 48 MiB; 64 MiB;
// and the vocabulary.
//
// Thread safety: a free function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_list.h"
#include "proto/config.pb.h"

namespace sluice {

struct ImportOptions {
  std::vector<std::string> files;  // table_source.h
  std::string like;                // the folder of a model or checkpoint: its job and other tables
  const JobConfig* job = nullptr;  // without `like`: an effective job
  std::string table;               // "": that of `feature`, or the only sparse table
  // A folder, or a URL; then the rows are divided on the disk of TMPDIR (else /var/tmp).
  std::string output;
  uint64_t most_shard_bytes = 192 << 20;  // a larger shard is sorted in stretches
  bool overwrite = false;                 // a model in `output` is replaced
  bool state = false;                     // with the optimizer's state: the output is a checkpoint
  std::string feature, vocabulary;        // row_keys.h
  std::string column, name;               // SourceOptions
  std::vector<std::string> text_columns;  // SourceOptions
};

struct ImportReport {
  std::string table;
  bool sparse = true;
  uint64_t rows = 0;  // in the table; elements of a dense table
  // Rows that have no key: no feature has their values; and the first of them.
  uint64_t unmatched = 0;
  std::vector<std::string> examples;
  uint64_t unused_lines = 0;                 // of the vocabulary, behind the line of the last row
  std::vector<std::string> unused_columns;   // of the file
  std::vector<std::string> initial_columns;  // column groups that the file lacks: initial values
  std::string digest;                        // of the model; "" for a checkpoint
};

// A folder that held a model keeps it when this fails. INVALID_ARGUMENT names the row (counted from
// 0; the line of a text) and its key or value when its width is wrong, its key occurs twice, or a
// value is NaN or infinite; or an option, with the fix.
absl::StatusOr<ImportReport> ImportTable(const ImportOptions& options, const ModelList& models,
                                         Env* env);

}  // namespace sluice

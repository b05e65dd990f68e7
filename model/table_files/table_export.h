// Writes a table of a saved model or checkpoint to one file, which other programs read: Parquet or
// .npz. The columns are those of table_columns.h; a dense table has `weights` and `state_NAME` in
// its shape, in an .npz.
//
// Memory: a few MiB, and the vocabulary.
//
// Thread safety: a free function.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_list.h"

namespace sluice {

struct ExportOptions {
  std::string model;       // the folder of a model or a checkpoint
  std::string table;       // "": that of `feature`, or the only sparse table
  std::string output;      // its ending tells the format: .parquet or .npz
  std::string feature;     // with it: value and feature instead of key
  std::string vocabulary;  // the values of `feature`, one a line; "": those of the job's vocabulary
  bool state = false;      // count, last_seen and the optimizer's state, too
};

struct ExportReport {
  std::string table;
  bool sparse = true;
  uint64_t rows = 0;  // written; elements of a dense table
  // With a vocabulary: rows of the table that no value names, and values without a row.
  uint64_t unnamed_rows = 0, unused_values = 0;
};

// Nothing appears at options.output when it fails. NOT_FOUND, DATA_LOSS: the model.
// INVALID_ARGUMENT: the options, with the fix. FAILED_PRECONDITION: a model has no state; or
// Parquet needs a library that is not there, with the way to get it.
absl::StatusOr<ExportReport> ExportTable(const ExportOptions& options, const ModelList& models,
                                         Env* env);

}  // namespace sluice

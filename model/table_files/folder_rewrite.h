// Writes a model or checkpoint into a new folder with fewer rows in one table. All else stays as it
// is: other tables, the job, the optimizer's state, and the state of workers.
//
// The new files have the names of the old ones, so a checkpoint stays one of its job: it continues
// with --resume when it takes the place of the old folder. The folder is no model before the
// manifest, its last file, is in force. Nothing is written to the old folder.
//
// A shard of a checkpoint counts what went in its turnover. In a checkpoint of a job with an export
// each row that went leaves a tombstone, so that the next delta names it.
//
// Memory: the rows of one shard twice, and 16 bytes a row of it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/table_files/model_folder.h"
#include "model/table_files/row_records.h"

namespace sluice {

// Whether a row stays, or why it goes.
enum class RowFate : uint8_t { kStays, kExpired, kEvicted, kDeleted };

class RowChooser {
 public:
  virtual ~RowChooser() = default;
  // Sets fates[i] of row i of the shard; all are kStays before. `facts` are empty in a model.
  // Shards come one after another.
  virtual absl::Status Choose(uint32_t shard, const ShardFacts& facts, const RowRecords& rows,
                              std::vector<RowFate>* fates) = 0;
};

struct RewriteReport {
  uint64_t rows = 0, kept = 0;         // in the files of the table, before and after
  uint64_t bytes = 0, kept_bytes = 0;  // of those files; after a dry run about
  uint64_t chains_ended = 0;           // shards with too many tombstones for a delta
  std::string digest;                  // of the new model; "" for a checkpoint
};

// `table` is a sparse one of `from`. `output` may be a URL; "": nothing is written.
// INVALID_ARGUMENT when `output` is in the folder of `from` or holds a model. After an error
// nothing of the output is left, as far as it can be removed.
absl::StatusOr<RewriteReport> RewriteFolder(const ModelFolder& from, const TableLayout& table,
                                            const std::string& output, RowChooser* chooser,
                                            Env* env);

}  // namespace sluice

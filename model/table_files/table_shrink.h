// Makes a model or checkpoint with fewer rows in a sparse table: those that a person's limits keep.
//
// Thread safety: a free function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/table_files/folder_rewrite.h"
#include "proto/config.pb.h"

namespace sluice {

// A row stays if it is within each limit that is given.
struct ShrinkOptions {
  std::string folder;  // a model or checkpoint
  std::string table;   // "": the only sparse one
  std::string output;  // a new folder; "": nothing is written, and the report says what would go
  // Since the last update. A checkpoint has them; days only if its job had them.
  std::optional<uint64_t> max_age_steps, max_age_days;
  std::optional<uint32_t> min_count;  // updates that a row has at least; a checkpoint has them
  // Rows of the whole table. Each shard keeps its share, as in a job with this max_rows: those with
  // the greatest score, among equals those updated last, among these by a hash of the key.
  std::optional<uint64_t> max_rows;
  // Default: those of the table's `evict`, else COUNT without a half-life.
  std::optional<EvictConfig::Score> score;
  std::optional<double> half_life_days;
};

struct ShrinkReport {
  std::string table;
  RewriteReport rewrite;
  // Rows that went. A row counts once, with the first reason that it has, in this order.
  uint64_t expired = 0, too_old = 0, too_rare = 0, beyond_max_rows = 0;
};

// Expired rows go in any case. INVALID_ARGUMENT: no limit is given, or the folder does not know
// what a limit needs; the message has the fix. Other errors as RewriteFolder.
absl::StatusOr<ShrinkReport> ShrinkTable(const ShrinkOptions& options, Env* env);

}  // namespace sluice

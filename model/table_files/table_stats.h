// How many rows the sparse tables of a model or checkpoint have, and of what kind: histograms of
// updates, norms and ages.
//
// Memory: 1 MiB a thread and the headers of the files that are read.
//
// Thread safety: a free function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/model.pb.h"

namespace sluice {

// Rows by a figure that is not negative: those with 0, and those in [2^e, 2^(e+1)).
class PowerHistogram {
 public:
  struct Bucket {
    double from, below;  // both 0: the rows with 0
    uint64_t rows;
  };

  void Add(double figure);
  void Add(const PowerHistogram& other);
  uint64_t rows() const;
  double greatest() const { return greatest_; }
  // From the first that has rows to the last one.
  std::vector<Bucket> Buckets() const;

 private:
  static constexpr int kLowest = -64, kHighest = 63;  // exponents; others count as these
  uint64_t zeros_ = 0;
  std::vector<uint64_t> by_exponent_ = std::vector<uint64_t>(kHighest - kLowest + 1);
  double greatest_ = 0;
};

struct TableStats {
  std::string name;
  uint32_t dim = 0, state_floats = 0, shards = 0;
  uint64_t bytes = 0;  // of the table's files
  uint64_t rows = 0;   // without expired ones
  PowerHistogram norm;

  // In a checkpoint:
  uint64_t expired = 0;          // rows in the files that the job reads as missing
  uint64_t schedule_steps = 0;   // of the shard that is furthest
  std::optional<int32_t> today;  // since 1970-01-01
  RowTurnover turnover;
  uint64_t tombstones = 0;
  PowerHistogram count, age_steps;
  PowerHistogram age_days;  // where the checkpoint has days
};

struct FolderStats {
  bool checkpoint = false;
  uint64_t global_step = 0;
  std::vector<TableStats> tables;
};

// `table`: "" stands for all sparse tables. INVALID_ARGUMENT: the folder has no such table, or none
// that is sparse. DATA_LOSS names a damaged file. NOT_FOUND also when the model or checkpoint was
// removed, or replaced by another save, while it was read.
absl::StatusOr<FolderStats> StatTables(const std::string& folder, const std::string& table,
                                       Env* env);

}  // namespace sluice

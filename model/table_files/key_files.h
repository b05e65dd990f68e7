// Reads files that name rows of a table: by their keys, or by values of a feature.
//
// Memory: 8 bytes a key.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/model_list.h"
#include "model/model_spec.h"
#include "proto/config.pb.h"

namespace sluice {

struct NamedKeys {
  std::vector<std::vector<uint64_t>> by_shard;  // of the table; ascending, each once
  uint64_t keys = 0;                            // of all shards
  // Several values may have one key, by the feature's hash_buckets. So rows of values that are not
  // in the files may be meant as well.
  bool folded = false;
  // Values without a key, since the feature does not have them; and the first of them.
  uint64_t unmatched = 0;
  std::vector<std::string> examples;
};

class KeyFiles {
 public:
  // `feature`: by whose rule values become keys; "": the files have keys, or name their features.
  // All outlive this. `job` is effective.
  KeyFiles(const JobConfig& job, const ModelList& models, std::string feature, Env* env)
      : job_(job), models_(models), feature_(std::move(feature)), env_(env) {}

  // The table that has the rows of the feature; "" without one. INVALID_ARGUMENT: the job has no
  // such feature, or it has no rows.
  absl::StatusOr<std::string> Table();
  // Text: a line is a key of the table, or with a feature a value. Parquet and .npz: the columns of
  // table_columns.h that name rows; .npy: integers, as the lines of a text. INVALID_ARGUMENT names
  // the file and the line or row that has no key.
  absl::StatusOr<NamedKeys> Read(const std::vector<std::string>& files, const TableLayout& table);

 private:
  absl::Status MakeSpec();

  const JobConfig& job_;
  const ModelList& models_;
  const std::string feature_;
  Env* const env_;
  std::unique_ptr<ModelSpec> spec_;
};

}  // namespace sluice

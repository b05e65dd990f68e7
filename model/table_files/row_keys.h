// Turns the names of a source's rows into keys of a table: keys as they are, values by the job's
// feature, numbers of rows by a vocabulary.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_spec.h"
#include "model/table_files/feature_keys.h"
#include "model/table_files/table_source.h"
#include "model/table_files/vocabulary.h"
#include "proto/config.pb.h"

namespace sluice {

class RowKeys {
 public:
  struct Options {
    std::string table, feature, vocabulary;
  };

  // INVALID_ARGUMENT says which of feature, vocabulary and key: RAW is missing or too many. `job`,
  // `spec` and `source` outlive this.
  static absl::StatusOr<RowKeys> Create(const JobConfig& job, const ModelSpec& spec,
                                        const Options& options, const TableSource& source,
                                        Env* env);

  // Sets keys[i] to the key of row i of the block, whose rows begin with row `first_row`; nullopt:
  // it has none, since no feature has its value.
  absl::Status Resolve(const SourceBlock& block, uint64_t first_row,
                       std::vector<std::optional<uint64_t>>* keys);
  // How a person calls row i of the block: "value 'x'", "key 17".
  std::string NameOf(const SourceBlock& block, size_t i, uint64_t first_row) const;
  // Lines of the vocabulary behind the last of `rows` rows.
  uint64_t LinesBehind(uint64_t rows) const;
  // Whether different values may have one key, because of hash_buckets.
  bool folded() const;

 private:
  RowKeys(const JobConfig& job, const ModelSpec& spec, const TableSource& source, std::string table)
      : job_(job), spec_(spec), source_(source), table_(std::move(table)) {}
  absl::Status CheckNames(const Options& options) const;
  absl::StatusOr<const FeatureKeys*> KeysOf(const std::string& feature);
  std::string ValueOf(const SourceBlock& block, size_t i, uint64_t first_row) const;

  const JobConfig& job_;
  const ModelSpec& spec_;
  const TableSource& source_;
  const std::string table_;
  std::map<std::string, FeatureKeys> features_;  // by name
  const FeatureKeys* only_ = nullptr;            // null: each row names its feature, or has a key
  std::optional<Vocabulary> vocabulary_;
};

}  // namespace sluice

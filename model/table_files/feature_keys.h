// The keys of a feature's values, by the rules of feature_compiler.h.
//
// A number of a bucketed feature is the index of its bucket, and that of a date's part the part:
// the values that are hashed, not the cells from which they come.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/model_spec.h"
#include "proto/config.pb.h"

namespace sluice {

class FeatureKeys {
 public:
  // INVALID_ARGUMENT when the job has no such feature, or its rows are not known by single values
  // (crosses, dense features, features that no part of the model looks up). `job` is effective;
  // `spec` is its model.
  static absl::StatusOr<FeatureKeys> Create(const JobConfig& job, const ModelSpec& spec,
                                            const std::string& feature);

  const std::string& feature() const { return feature_; }
  // The sparse table that has its rows.
  const std::string& table() const { return table_; }
  bool raw() const { return raw_; }
  bool folded() const { return hash_buckets_ > 0; }
  // Nullopt: the feature has no such value: it is outside its vocabulary, or no integer of a RAW
  // feature.
  std::optional<uint64_t> KeyOf(absl::string_view value) const;

 private:
  FeatureKeys() = default;
  std::string feature_, table_;
  bool raw_ = false;
  uint64_t seed_ = 0, hash_buckets_ = 0;
  absl::flat_hash_set<std::string> vocabulary_;  // empty: all values
};

// Whether all rows of the sparse table have integers as keys.
bool HasRawKeys(const JobConfig& job, const ModelSpec& spec, const std::string& table);

// The names of the features whose rows the table has.
std::vector<std::string> FeaturesOf(const ModelSpec& spec, const std::string& table);

}  // namespace sluice

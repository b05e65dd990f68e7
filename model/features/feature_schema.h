// The declared features, compiled: which columns are read, and how a line's fields become numbers
// and keys.
//
// Keys: a value's key is HashBytes(value, seed of its slot), the slot's seed a hash of the
// feature's name; a cross hashes the keys of its parts in order. Frozen: part of the data format.
// Thread safety: immutable after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/batch.h"
#include "model/features/data_counts.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class FeatureSchema {
 public:
  // What no part of the model uses is no slot and no number: its keys are never asked for. in_wide
  // and in_deep say which parts use it.
  struct Slot {
    std::string name;
    bool in_wide = true;
    bool in_deep = true;
    CategoricalFeature::Pooling pooling = CategoricalFeature::SUM;
  };
  struct Numeric {
    std::string name;
    bool in_wide = true;
    bool in_deep = true;
  };

  // INVALID_ARGUMENT names the feature and the fix (cross of an unknown feature, boundaries not
  // ascending, ...).
  static absl::StatusOr<std::shared_ptr<const FeatureSchema>> Create(const JobConfig& job);
  virtual ~FeatureSchema() = default;

  virtual const std::vector<Numeric>& numerics() const = 0;
  virtual const std::vector<Slot>& slots() const = 0;
  // Names of the columns that lines must have, label and weight first ("" where there is none).
  virtual const std::vector<std::string>& columns() const = 0;
  // Appends one example from the values of columns(), same order. `missing[i]` marks absent values.
  // With `need_label` false a missing label is 0. Counts the example in batch->counts when it is
  // set. INVALID_ARGUMENT says what is wrong with the line (column, value); then nothing was
  // appended or counted.
  virtual absl::Status AppendExample(const std::string_view* values, const bool* missing,
                                     bool need_label, Batch* batch) const = 0;
  // What AppendExample counted, by the features of the job.
  virtual DataSummary Summarize(const DataCounts&) const { return DataSummary(); }
};

}  // namespace sluice

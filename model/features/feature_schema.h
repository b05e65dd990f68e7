// The compiled features: which columns are read, and how cells become numbers and keys.
//
// Format: feature_compiler.h. A value's key is HashBytes(value, seed of its slot), where the seed
// is a hash of the name of the slot's embedding, by default the feature's name. The key of a RAW
// feature is the value. A cross hashes the keys of its parts in order. Keys are frozen.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/batch.h"
#include "model/features/cell_column.h"
#include "model/features/data_summary.h"
#include "model/features/dense_rows.h"
#include "model/features/example_cells.h"
#include "model/features/feature_use.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Appends the examples of blocks of rows whose columns stand together.
//
// Thread safety: one thread.
class ColumnAppender {
 public:
  // The examples of a block that are worked on at a time; other sizes are slower.
  static constexpr size_t kUsualRows = 1024;
  using BadRow = std::function<void(size_t row, const absl::Status& why)>;
  virtual ~ColumnAppender() = default;

  // Appends the examples of `rows` rows from FeatureSchema::columns(), in this order, as
  // FeatureSchema::AppendExample does one by one. Tells, in order, of each row that it refuses;
  // batch->n is then the number of examples before it. A returned error ends the data.
  virtual absl::Status Append(const CellColumn* columns, size_t rows, bool need_label, Batch* batch,
                              const BadRow& bad) = 0;
};

class FeatureSchema {
 public:
  // Only features that a part of the model uses become slots and numbers; the keys of others are
  // never needed. in_wide and in_deep say which parts use the slot.
  struct Slot {
    std::string name;
    bool in_wide = true;
    bool in_deep = true;
    CategoricalFeature::Pooling pooling = CategoricalFeature::SUM;
    // Dense features: the keys of the slot are these row numbers. Rows of slots that only the deep
    // part uses come first, then those of both parts, then those of the wide part alone, so that
    // the rows of each part follow each other.
    RowRange rows;
    bool weighted = false;  // its values have weights
    // The index of its sparse table (sparse_table_plan.h); 0 for dense features.
    uint32_t table = 0;
  };
  // One number of an example.
  struct Numeric {
    std::string name;  // of the feature; "NAME[i]" for those of a vector
    bool in_wide = true;
    bool in_deep = true;
    uint32_t dim = 0;  // of the vector to which it belongs; 0: none
  };

  // Without `use`, both parts use every feature. INVALID_ARGUMENT names the feature and the fix,
  // such as for a cross of an unknown feature or boundaries that do not ascend.
  static absl::StatusOr<std::shared_ptr<const FeatureSchema>> Create(
      const JobConfig& job, const FeatureUse& use = FeatureUse());
  virtual ~FeatureSchema() = default;

  // The numbers of an example, in their order; those of a vector follow each other.
  virtual const std::vector<Numeric>& numerics() const = 0;
  virtual const std::vector<Slot>& slots() const = 0;
  // Whether a slot is weighted, so that batches have key_weights.
  bool weighted() const {
    for (const Slot& slot : slots()) {
      if (slot.weighted) return true;
    }
    return false;
  }
  // Names of the columns that lines must have, label and weight first ("" where there is none).
  virtual const std::vector<std::string>& columns() const = 0;
  // Appends one example from the cells of columns(), in the same order. With `need_label` false a
  // missing label is 0. Counts the example in batch->counts when that is set. INVALID_ARGUMENT
  // names the column and value that are wrong; nothing is then appended or counted.
  virtual absl::Status AppendExample(const ExampleCells& cells, bool need_label,
                                     Batch* batch) const = 0;
  // The same for text; `missing[i]` marks absent values.
  absl::Status AppendExample(const std::string_view* values, const bool* missing, bool need_label,
                             Batch* batch) const {
    return AppendExample(ExampleCells{values, missing, nullptr}, need_label, batch);
  }
  // Everything for which AppendExample with need_label refuses a line; empty: it does not. Slower.
  virtual std::vector<absl::Status> FindProblems(const ExampleCells&) const { return {}; }
  // The schema must outlive it. Null: examples come one by one only.
  virtual std::unique_ptr<ColumnAppender> NewColumnAppender() const { return nullptr; }
  // Summarizes the counts of AppendExample by the features of the job.
  virtual DataSummary Summarize(const DataCounts&) const { return DataSummary(); }
};

}  // namespace sluice

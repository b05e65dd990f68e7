// The keys of an example: of categories, buckets, parts of dates and crosses.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "model/features/batch.h"
#include "model/features/example_numbers.h"
#include "model/features/example_values.h"
#include "model/features/feature_compiler.h"
#include "model/features/value_keys.h"

namespace sluice {

// Weight 1 for the keys that have none yet, at the end of the batch.
inline void FillKeyWeights(Batch* batch) { batch->key_weights.resize(batch->keys.size(), 1); }

class ExampleKeys {
 public:
  // The keys of a single-valued category; not present when the value is missing.
  struct PartKey {
    ValueKeys keys;
    bool present = false;
  };
  using PartKeys = absl::InlinedVector<PartKey, 32>;

  // All arguments outlive it. `weighted`: batches have key_weights.
  ExampleKeys(const CompiledFeatures& features, const ExampleNumbers& numbers, bool weighted);

  // Errors of all: INVALID_ARGUMENT names feature, column and cell.

  template <typename Value>
  absl::Status SingleKey(const CompiledCategory& category, const ExampleValues<Value>& cells,
                         PartKey* key) const;
  // Appends the keys of the feature. `parts`: by CompiledCategory::part.
  template <typename Value>
  absl::Status AppendCategory(const CompiledCategory& category, const ExampleValues<Value>& cells,
                              const PartKeys& parts, Batch* batch) const;
  void AppendCross(const CompiledCross& cross, const PartKeys& parts, Batch* batch) const;

  // Whether the slot has one hashed value of text that no cross uses, as most slots are.
  bool IsPlain(size_t slot) const { return plain_[slot].column != kNone; }
  // Appends the keys and offsets of the plain slots from `first` on; returns the next other slot.
  size_t AppendPlainRun(size_t first, const ExampleText& cells, Batch* batch) const;

  // The keys of a cell with several values or with weights; those of a missing one if it has none.
  absl::Status AppendValues(const CompiledCategory& category, std::string_view cell,
                            DataCounts* counts, Batch* batch) const;
  // The key of a value as it is written, with its weight behind the weight_delimiter; none if it is
  // missing.
  absl::Status AppendWritten(const CompiledCategory& category, std::string_view value,
                             DataCounts* counts, Batch* batch) const;

 private:
  struct PlainSlot {
    int column = kNone;
    bool missing_is_value = false;
    uint64_t seed = 0;
    uint64_t hash_buckets = 0;
    uint64_t missing_key = 0;
    bool dense = false;
    uint64_t first_row = 0;  // dense
    size_t run_end = 0;      // the first slot after it that is not plain
  };

  absl::Status AppendValues(const CompiledCategory& category, const Cell& cell, DataCounts* counts,
                            Batch* batch) const;
  template <typename Value>
  absl::Status AppendValue(const CompiledCategory& category, const Value& value, double weight,
                           DataCounts* counts, Batch* batch) const;
  // INVALID_ARGUMENT when the value of a RAW feature is not a key, or the value is no category.
  template <typename Value>
  absl::Status KeysOfCell(const CompiledCategory& category, const Value& value, DataCounts* counts,
                          ValueKeys* keys) const;

  const CompiledFeatures& f_;
  const ExampleNumbers& numbers_;
  const bool weighted_;
  std::vector<PlainSlot> plain_;  // by slots(); column kNone: the slot is not plain
};

}  // namespace sluice

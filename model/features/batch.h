// Parsed examples in memory, ready for the model: numbers by feature, keys by slot.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

class DataCounts;

// A view of n examples in other memory, laid out as in a Batch. Arrays have the sizes below, but
// their contents may change at any time when the memory is that of a mapped file.
struct ExampleView {
  size_t n = 0;
  size_t num_numeric = 0;
  size_t num_slots = 0;
  const float* label = nullptr;           // [n]
  const float* weight = nullptr;          // [n]; null: all are 1
  const float* numeric = nullptr;         // [n][num_numeric]
  const uint32_t* key_offsets = nullptr;  // [n * num_slots + 1]; null: one key per slot
  const uint64_t* keys = nullptr;         // [num_keys]
  size_t num_keys = 0;
  const float* key_weights = nullptr;  // [num_keys]; null: all are 1
  const std::string* file = nullptr;   // the path of the mapped file; null: memory of this process
};

// n examples. A slot is a categorical, bucketed or crossed feature; an example has any number of
// keys in it.
struct Batch {
  size_t n = 0;
  size_t num_numeric = 0;
  size_t num_slots = 0;
  std::vector<float> label;    // [n], 0 or 1
  std::vector<float> weight;   // [n]
  std::vector<float> numeric;  // [n][num_numeric], normalized
  std::vector<uint32_t>
      key_offsets;  // [n * num_slots + 1]: keys of (example i, slot s) begin at [i * num_slots + s]
  std::vector<uint64_t> keys;  // [key_offsets.back()]
  // The weight of each key when its slot is pooled: [keys]; empty: each weight is 1.
  std::vector<float> key_weights;
  // Identity of each example for dropout: a hash of its piece (sync) or task and its place there.
  std::vector<uint64_t> example_id;  // [n]
  // Sync: position of the first example within the global batch. Gradient sums are cut at multiples
  // of `chunk` positions, so that any split of the global batch adds the same numbers. 0: no cuts.
  size_t first_position = 0;
  size_t chunk = 0;
  // When set, counts the cell contents of the examples that are parsed into this batch.
  DataCounts* counts = nullptr;
  // Async and Geo: the task of the batch, and the offset in the task where the batch ends.
  uint64_t task_id = 0, task_end = 0;

  // Empties the batch and sets num_numeric and num_slots. Keeps its memory.
  void Reset(size_t numeric_features, size_t slots);
  // Reserves memory for `examples` with one key per slot, so that appending them moves nothing.
  void Reserve(size_t examples, size_t numeric_features, size_t slots);
  // Valid until the batch changes.
  ExampleView view() const {
    return {n,
            num_numeric,
            num_slots,
            label.data(),
            weight.data(),
            numeric.data(),
            key_offsets.data(),
            keys.data(),
            keys.size(),
            key_weights.empty() ? nullptr : key_weights.data()};
  }
  // Appends example `i` of `from` (without its example_id, which becomes `id`). DATA_LOSS names the
  // file when the offsets of its keys are impossible, since somebody has changed the file after it
  // was checked; nothing is appended then.
  absl::Status Append(const ExampleView& from, size_t i, uint64_t id);
  absl::Status Append(const Batch& from, size_t i, uint64_t id) {
    return Append(from.view(), i, id);
  }

 private:
  // Adds the weights of the keys from `before` on, which are those of `from` from `first` on.
  void AppendKeyWeights(const ExampleView& from, size_t first, size_t before);
};

}  // namespace sluice

#include "model/features/batch.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Keeps the compiler from reading the value again later.
uint32_t ReadOnce(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }

absl::Status Changed(const ExampleView& from, size_t i) {
  const std::string what =
      from.file == nullptr ? "examples in memory" : absl::StrCat("the cache file ", *from.file);
  return absl::DataLossError(absl::StrCat(
      what, " changed while a job used it: the keys of example ", i, " are not among its ",
      from.num_keys, " keys; remove the file, let nobody write to it, and start the job again"));
}

}  // namespace

void Batch::Reset(size_t numeric_features, size_t slots) {
  n = 0;
  num_numeric = numeric_features;
  num_slots = slots;
  label.clear();
  weight.clear();
  numeric.clear();
  key_offsets.assign(1, 0);
  keys.clear();
  key_weights.clear();
  example_id.clear();
  first_position = 0;
  chunk = 0;
  task_id = 0;
  task_end = 0;
}

void Batch::Reserve(size_t examples, size_t numeric_features, size_t slots) {
  label.reserve(examples);
  weight.reserve(examples);
  numeric.reserve(examples * numeric_features);
  key_offsets.reserve(examples * slots + 1);
  keys.reserve(examples * slots);
}

void Batch::AppendKeyWeights(const ExampleView& from, size_t first, size_t before) {
  if (from.key_weights == nullptr && key_weights.empty()) return;
  key_weights.resize(before, 1);  // the keys so far had none
  const size_t n = keys.size() - before;
  if (from.key_weights == nullptr) {
    key_weights.resize(keys.size(), 1);
  } else {
    key_weights.insert(key_weights.end(), from.key_weights + first, from.key_weights + first + n);
  }
}

absl::Status Batch::Append(const ExampleView& from, size_t i, uint64_t id) {
  const size_t first = i * num_slots, at = keys.size(), offsets = key_offsets.size();
  key_offsets.resize(offsets + num_slots);
  uint32_t* const to = key_offsets.data() + offsets;
  if (from.key_offsets == nullptr) {
    for (size_t s = 0; s < num_slots; ++s) to[s] = static_cast<uint32_t>(at + s + 1);
    keys.insert(keys.end(), from.keys + first, from.keys + first + num_slots);
    AppendKeyWeights(from, first, at);
  } else {
    // A mapped file can change at any moment, so each offset is read once, checked and copied.
    const uint32_t* const own = from.key_offsets + first;
    const uint32_t begin = ReadOnce(own);
    // All offsets shift by the same distance, modulo 2^32.
    const uint32_t moved = static_cast<uint32_t>(at) - begin;
    uint32_t end = begin;
    bool falls = false;
    for (size_t s = 0; s < num_slots; ++s) {
      const uint32_t next = ReadOnce(own + s + 1);
      falls |= next < end;
      to[s] = next + moved;
      end = next;
    }
    if (falls || end > from.num_keys || at + (end - begin) > UINT32_MAX) {
      key_offsets.resize(offsets);
      return Changed(from, i);
    }
    keys.insert(keys.end(), from.keys + begin, from.keys + end);
    AppendKeyWeights(from, begin, at);
  }
  label.push_back(from.label[i]);
  weight.push_back(from.weight != nullptr ? from.weight[i] : 1);
  const float* const numbers = from.numeric + i * num_numeric;
  numeric.insert(numeric.end(), numbers, numbers + num_numeric);
  example_id.push_back(id);
  ++n;
  return absl::OkStatus();
}

}  // namespace sluice

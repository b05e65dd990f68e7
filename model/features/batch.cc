#include "model/features/batch.h"

namespace sluice {

void Batch::Reset(size_t numeric_features, size_t slots) {
  n = 0;
  num_numeric = numeric_features;
  num_slots = slots;
  label.clear();
  weight.clear();
  numeric.clear();
  key_offsets.assign(1, 0);
  keys.clear();
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

void Batch::Append(const ExampleView& from, size_t i, uint64_t id) {
  label.push_back(from.label[i]);
  weight.push_back(from.weight != nullptr ? from.weight[i] : 1);
  const float* const numbers = from.numeric + i * num_numeric;
  numeric.insert(numeric.end(), numbers, numbers + num_numeric);
  const size_t first = i * num_slots, at = keys.size(), offsets = key_offsets.size();
  key_offsets.resize(offsets + num_slots);
  uint32_t* const to = key_offsets.data() + offsets;
  if (from.key_offsets == nullptr) {
    for (size_t s = 0; s < num_slots; ++s) to[s] = static_cast<uint32_t>(at + s + 1);
    keys.insert(keys.end(), from.keys + first, from.keys + first + num_slots);
  } else {
    const uint32_t* const own = from.key_offsets + first;
    // All offsets shift by the same distance, modulo 2^32.
    const uint32_t moved = static_cast<uint32_t>(at) - own[0];
    for (size_t s = 0; s < num_slots; ++s) to[s] = own[s + 1] + moved;
    keys.insert(keys.end(), from.keys + own[0], from.keys + own[num_slots]);
  }
  example_id.push_back(id);
  ++n;
}

}  // namespace sluice

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

void Batch::Append(const Batch& from, size_t i, uint64_t id) {
  label.push_back(from.label[i]);
  weight.push_back(from.weight[i]);
  const auto numbers = from.numeric.begin() + i * num_numeric;
  numeric.insert(numeric.end(), numbers, numbers + num_numeric);
  const uint32_t* offsets = from.key_offsets.data() + i * num_slots;
  // Offsets move by the same distance (modulo 2^32) as the keys do.
  const uint32_t moved = static_cast<uint32_t>(keys.size()) - offsets[0];
  for (size_t s = 1; s <= num_slots; ++s) key_offsets.push_back(offsets[s] + moved);
  keys.insert(keys.end(), from.keys.begin() + offsets[0], from.keys.begin() + offsets[num_slots]);
  example_id.push_back(id);
  ++n;
}

}  // namespace sluice

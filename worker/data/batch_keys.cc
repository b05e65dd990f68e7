#include "worker/data/batch_keys.h"

namespace sluice {

void BatchKeys::Gather(const JobContext& context, size_t table, const Batch& batch) {
  const std::vector<FeatureSchema::Slot>& slots = context.model->schema()->slots();
  slots_.clear();
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].table == table) slots_.push_back(s);
  }
  keys_.clear();
  positions_.clear();
  for (size_t i = 0; i < batch.n; ++i) {
    const uint32_t* const offsets = &batch.key_offsets[i * batch.num_slots];
    for (const size_t s : slots_) {
      for (uint32_t k = offsets[s]; k < offsets[s + 1]; ++k) {
        keys_.push_back(batch.keys[k]);
        positions_.push_back(k);
      }
    }
  }
}

void BatchKeys::Find(const JobContext& context, PreparedBatch* prepared) {
  const size_t tables = context.sparse_tables();
  const std::vector<uint64_t>& keys = prepared->batch.keys;
  prepared->keys.resize(tables);
  if (tables == 0) return;
  prepared->row_index.resize(keys.size());
  if (tables == 1) {
    deduplicator_.Run(context.sparse(0), keys.data(), keys.size(), &prepared->keys[0],
                      prepared->row_index.data());
    return;
  }
  for (size_t table = 0; table < tables; ++table) {
    Gather(context, table, prepared->batch);
    numbers_.resize(keys_.size());
    deduplicator_.Run(context.sparse(table), keys_.data(), keys_.size(), &prepared->keys[table],
                      numbers_.data());
    for (size_t k = 0; k < keys_.size(); ++k) prepared->row_index[positions_[k]] = numbers_[k];
  }
}

}  // namespace sluice

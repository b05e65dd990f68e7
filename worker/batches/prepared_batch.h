// A batch with its unique keys, and the value or gradient buffers of one step.
//
// Thread safety: one thread. The queue hands a batch from a reader to the training thread.
#pragma once

#include <memory>
#include <vector>

#include "client/key_set.h"
#include "model/features/batch.h"
#include "model/net/host_memory.h"

namespace sluice {

struct PreparedBatch {
  Batch batch;
  std::vector<KeySet> keys;         // by sparse table: its unique keys
  std::vector<uint32_t> row_index;  // [batch.keys]: position of each key in its table's `keys`
  // Async and Geo: whether this batch ends its task, and how many examples of the task end with it.
  bool last_of_task = false;
  uint64_t task_examples = 0;
};

inline std::shared_ptr<const KeySet> KeysOf(const std::shared_ptr<const PreparedBatch>& prepared,
                                            size_t table) {
  return std::shared_ptr<const KeySet>(prepared, &prepared->keys[table]);
}

// Values or gradients of one step, by table.
struct StepBuffers {
  std::vector<HostArray> rows;  // by Model::sparse_tables(), [U][dim]
  // By Model::dense_tables(), [elements]. Empty if the program has frozen it (IsFrozenTable).
  std::vector<std::vector<float>> dense;
};

}  // namespace sluice

// Finds the unique keys of a batch, by sparse table.
//
// With one sparse table, all keys of the batch are its own. With several, the keys of each table's
// slots are copied together first, in the order of the examples and of their slots, which takes
// about 2 ns a key.
//
// Memory: hash table and copies of the largest batch.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "client/key_set.h"
#include "worker/batches/prepared_batch.h"
#include "worker/context/job_context.h"

namespace sluice {

class BatchKeys {
 public:
  // Fills prepared->keys and row_index from prepared->batch, whose slots are those of the model.
  void Find(const JobContext& context, PreparedBatch* prepared);

 private:
  // Lists the keys of sparse table `table`, and their positions in the batch.
  void Gather(const JobContext& context, size_t table, const Batch& batch);

  KeyDeduplicator deduplicator_;
  std::vector<size_t> slots_;                  // of one table
  std::vector<uint64_t> keys_;                 // of one table
  std::vector<uint32_t> positions_, numbers_;  // of these keys in the batch and among the unique
};

}  // namespace sluice

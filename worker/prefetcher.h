// The reader thread of an epoch: batches from a source, their unique keys, into the bounded queue.
//
// Thread safety: made and destroyed by the training thread.
#pragma once

#include <thread>

#include "worker/batch_queue.h"
#include "worker/batch_source.h"
#include "worker/pool.h"

namespace sluice {

class Prefetcher {
 public:
  // `source` and `context` outlive it.
  Prefetcher(const JobContext& context, BatchSource* source);
  // Cancels what is not consumed and joins the thread.
  ~Prefetcher();
  BatchQueue* queue() { return &queue_; }

 private:
  void Run();
  absl::StatusOr<bool> Prepare(PreparedBatch* prepared);

  const JobContext& context_;
  BatchSource* const source_;
  KeyDeduplicator deduplicator_;
  Pool<PreparedBatch> pool_;
  BatchQueue queue_;
  std::thread thread_;
};

}  // namespace sluice

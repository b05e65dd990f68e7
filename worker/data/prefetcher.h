// The reader threads of an epoch (train.reader_threads), which prepare batches for a bounded queue.
//
// They take batches from a source, find their unique keys and queue them. The order is the source's
// for any number of threads.
//
// Memory: the queue, and one batch per thread.
//
// Thread safety: one thread, the training thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "worker/batches/batch_queue.h"
#include "worker/batches/pool.h"
#include "worker/data/batch_keys.h"
#include "worker/data/batch_source.h"

namespace sluice {

class Prefetcher {
 public:
  // `source` and `context` outlive it.
  Prefetcher(const JobContext& context, BatchSource* source);
  // Drops the batches that are not consumed and joins the threads.
  ~Prefetcher();
  BatchQueue* queue() { return &queue_; }

 private:
  void Run(uint32_t reader);
  // The source's next batch, with its place in the order. Empty when there is none.
  BatchSource::Fill Next(uint64_t* place);
  absl::Status Prepare(const BatchSource::Fill& fill, BatchKeys* keys,
                       PreparedBatch* prepared) const;
  // Ends the queue at `place` with `end`. The source has no batch for it, or it cannot be prepared.
  void Close(uint64_t place, absl::Status end);
  // False: stop.
  bool Push(uint64_t place, BatchQueue::Item item);
  // Waits until all batches before `place` are in the queue. False: stop.
  bool AwaitTurn(uint64_t place);
  void Stop();

  const JobContext& context_;
  Pool<PreparedBatch> pool_;
  BatchQueue queue_;

  Mutex source_mutex_;  // held while the source reads
  BatchSource* const source_ ABSL_PT_GUARDED_BY(source_mutex_);
  uint64_t next_ ABSL_GUARDED_BY(source_mutex_) = 0;
  BatchSource* const waits_;  // the same source, for Cancel
  // Written with source_mutex_. Atomic, because the destructor looks at it while a reader, which
  // holds that lock, may wait for the source.
  std::atomic<bool> ended_{false};

  Mutex turn_mutex_;
  CondVar turned_;
  uint64_t turn_ ABSL_GUARDED_BY(turn_mutex_) = 0;  // places below it are in the queue
  bool stopped_ ABSL_GUARDED_BY(turn_mutex_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace sluice

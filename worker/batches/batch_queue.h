// The bounded queue between the reader threads and the training thread.
//
// Thread safety: safe from any thread. Readers push one at a time, in the order of their batches;
// one thread pops.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "worker/batches/prepared_batch.h"

namespace sluice {

class BatchQueue {
 public:
  using Item = std::shared_ptr<const PreparedBatch>;

  explicit BatchQueue(size_t capacity) : capacity_(capacity) {}

  // Waits for room. False: the queue was cancelled; stop producing.
  bool Push(Item item);
  // Ends the queue; Pop returns `status` after the last item.
  void Close(absl::Status status);
  // Makes every waiting and later call return at once.
  void Cancel();

  // Waits for an item. Null after the last one.
  absl::StatusOr<Item> Pop();
  // Does not wait. Null when no item is ready.
  Item TryPop();
  // Waits until Pop would return at once, at most this long. False when it would not.
  bool AwaitItem(std::chrono::milliseconds most);
  // Returns the item that Pop would return next, without removing it; null when no item is ready.
  Item Peek();
  size_t size();
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

// The bounded queue between the reader thread and the training thread.
//
// Thread safety: safe; made for one producer and one consumer.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "worker/prepared_batch.h"

namespace sluice {

class BatchQueue {
 public:
  using Item = std::shared_ptr<const PreparedBatch>;

  explicit BatchQueue(size_t capacity) : capacity_(capacity) {}

  // Waits for room. False when the queue was cancelled: stop producing.
  bool Push(Item item);
  // No more items; `status` is returned by Pop after the last one.
  void Close(absl::Status status);
  // Both sides return at once from now on.
  void Cancel();

  // Waits for an item; null at the end.
  absl::StatusOr<Item> Pop();
  // Null when there is none right now.
  Item TryPop();
  // What Pop gives next, left there; null when there is none right now.
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

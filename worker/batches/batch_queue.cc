#include "worker/batches/batch_queue.h"

namespace sluice {

bool BatchQueue::Push(Item item) {
  MutexLock lock(&mutex_);
  while (items_.size() >= capacity_ && !cancelled_) changed_.Wait(&mutex_);
  if (cancelled_) return false;
  items_.push_back(std::move(item));
  changed_.NotifyAll();
  return true;
}

void BatchQueue::Close(absl::Status status) {
  MutexLock lock(&mutex_);
  closed_ = true;
  status_ = std::move(status);
  changed_.NotifyAll();
}

void BatchQueue::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

absl::StatusOr<BatchQueue::Item> BatchQueue::Pop() {
  MutexLock lock(&mutex_);
  while (items_.empty() && !closed_ && !cancelled_) changed_.Wait(&mutex_);
  // Cancelled comes first: batches that are left are dropped.
  if (cancelled_) return absl::CancelledError("the job was cancelled");
  // The reader's status comes only after its last item, so that batches already read are trained.
  if (items_.empty()) {
    if (!status_.ok()) return status_;
    return Item();
  }
  Item item = std::move(items_.front());
  items_.pop_front();
  changed_.NotifyAll();
  return item;
}

bool BatchQueue::AwaitItem(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  MutexLock lock(&mutex_);
  while (items_.empty() && !closed_ && !cancelled_) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    // Woken for other changes too, so the loop looks at the clock again.
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

size_t BatchQueue::size() {
  MutexLock lock(&mutex_);
  return items_.size();
}

BatchQueue::Item BatchQueue::Peek() {
  MutexLock lock(&mutex_);
  // A batch that will never be popped must not be announced.
  return items_.empty() || cancelled_ ? nullptr : items_.front();
}

BatchQueue::Item BatchQueue::TryPop() {
  MutexLock lock(&mutex_);
  if (items_.empty() || cancelled_) return nullptr;
  Item item = std::move(items_.front());
  items_.pop_front();
  changed_.NotifyAll();
  return item;
}

}  // namespace sluice

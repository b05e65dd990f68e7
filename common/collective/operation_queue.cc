#include "common/collective/operation_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

OperationQueue::OperationQueue(absl::Status closed) : error_(std::move(closed)) {}

OperationQueue::~OperationQueue() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    waiting_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

uint64_t OperationQueue::Start(std::function<absl::Status()> operation) {
  // Made on demand: groups that never start an operation, such as those of tests and of evaluation,
  // need no thread.
  if (!thread_.joinable()) thread_ = std::thread([this] { RunStarted(); });
  MutexLock lock(&mutex_);
  const uint64_t ticket = ++started_;
  if (!error_.ok()) {
    // An operation that still runs has not finished.
    if (!running_) finished_ = ticket;
    return ticket;
  }
  waiting_.push_back(std::move(operation));
  changed_.NotifyAll();
  return ticket;
}

void OperationQueue::RunStarted() {
  while (true) {
    std::function<absl::Status()> operation;
    {
      MutexLock lock(&mutex_);
      while (!ending_ && waiting_.empty()) changed_.Wait(&mutex_);
      if (ending_) return;
      // Taken out of the queue, to be called without the lock: it waits for other ranks, and Fail
      // must get through meanwhile.
      operation = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = true;
    }
    const absl::Status status = operation();
    MutexLock lock(&mutex_);
    running_ = false;
    Finish(status);
  }
}

void OperationQueue::Finish(const absl::Status& status) {
  ++finished_;
  if (!status.ok()) Break(finished_, status);
  if (!error_.ok()) {
    // Fail may have come while the operation ran: if it succeeded all the same, its result counts.
    failed_from_ = status.ok() ? finished_ + 1 : finished_;
    finished_ = started_;
  }
  changed_.NotifyAll();
}

void OperationQueue::Break(uint64_t from, const absl::Status& error) {
  if (!error_.ok()) return;
  error_ = error;
  failed_from_ = from;
  // They must not run: the ranks would no longer make the same operations.
  waiting_.clear();
}

void OperationQueue::Fail(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  Break(finished_ + 1, reason);
  // The operation that runs still uses its array. Its end finishes the rest (Finish).
  if (!running_) finished_ = started_;
  changed_.NotifyAll();
}

absl::Status OperationQueue::Wait(uint64_t ticket) {
  MutexLock lock(&mutex_);
  if (ticket == 0 || ticket > started_) {
    return absl::InvalidArgumentError(
        absl::StrCat("no operation has ticket ", ticket, "; the newest is ", started_));
  }
  while (finished_ < ticket) changed_.Wait(&mutex_);
  return ticket < failed_from_ ? absl::OkStatus() : error_;
}

absl::Status OperationQueue::Run(absl::FunctionRef<absl::Status()> operation) {
  {
    MutexLock lock(&mutex_);
    // The engine takes one call at a time, and all ranks must keep the order in which operations
    // began.
    while (running_ || !waiting_.empty()) changed_.Wait(&mutex_);
    if (!error_.ok()) return error_;
  }
  const absl::Status status = operation();
  MutexLock lock(&mutex_);
  if (!status.ok()) Break(finished_ + 1, status);
  return status;
}

void OperationQueue::Close(absl::Status reason, const std::function<void()>& interrupt) {
  bool running = false;
  {
    MutexLock lock(&mutex_);
    waiting_.clear();
    running = running_;
  }
  // Nothing is called under the lock. If the operation ends meanwhile, the interruption is
  // harmless: nothing follows it.
  if (running && interrupt) interrupt();
  MutexLock lock(&mutex_);
  while (running_) changed_.Wait(&mutex_);
  if (error_.ok()) failed_from_ = finished_ + 1;
  finished_ = started_;
  error_ = std::move(reason);
}

void OperationQueue::Open() {
  MutexLock lock(&mutex_);
  error_ = absl::OkStatus();
  failed_from_ = ~uint64_t{0};
}

}  // namespace sluice

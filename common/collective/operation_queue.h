// Runs the operations of a group one after the other, on a thread of its own or on the caller's.
//
// Invariants: operations run in the order of their tickets, one at a time. Once one has failed,
// none runs any more, and it and all later ones have its error, until Open.
//
// Thread safety: one thread, except Fail.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace sluice {

class OperationQueue {
 public:
  // Operations fail with `closed` until Open. The thread starts with the first Start.
  explicit OperationQueue(absl::Status closed);
  // Waits for the operation that runs.
  ~OperationQueue();

  // Returns the operation's ticket; tickets grow from 1.
  uint64_t Start(std::function<absl::Status()> operation);
  // Waits until the operation is complete or has failed.
  absl::Status Wait(uint64_t ticket);
  // Runs an operation on this thread, after all that were started. It has no ticket.
  absl::Status Run(absl::FunctionRef<absl::Status()> operation);

  // Operations that have not run yet, and later ones, fail with `reason`. When an operation runs,
  // calls `interrupt`, if there is one, and waits for the operation's end.
  void Close(absl::Status reason, const std::function<void()>& interrupt = nullptr);
  // The same without waiting: an operation that runs keeps its own result if that is OK. Does
  // nothing when there is an error already. Safe from any thread.
  void Fail(const absl::Status& reason);
  // Lets operations run again.
  void Open();

 private:
  void RunStarted();
  // Records the end of the started operation that ran.
  void Finish(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives `error` to the tickets from `from` on, unless there is one already.
  void Break(uint64_t from, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<absl::Status()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t started_ ABSL_GUARDED_BY(mutex_) = 0;   // the newest ticket
  uint64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;  // the newest ticket that has run
  absl::Status error_ ABSL_GUARDED_BY(mutex_);     // of all tickets from failed_from_ on
  uint64_t failed_from_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;  // used by the calling thread
};

}  // namespace sluice

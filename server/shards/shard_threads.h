// Threads that help to change or read many shards at once: the close of a large sync step, and the
// answers that it makes ready.
//
// The calling thread works too, so a call never waits for a helper to become free, and many calls
// may share the helpers.
//
// Thread safety: safe from any thread. No item may call ForEach or destroy the object.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"

namespace sluice {

class ShardThreads {
 public:
  // Waking a helper and waiting for it costs some microseconds on each side.
  static constexpr std::chrono::microseconds kWorthSharing{200};

  // `helpers`: threads besides those that call. 0: every caller works alone. Callers share work
  // that takes one thread longer than `worth_sharing`.
  explicit ShardThreads(int helpers, std::chrono::microseconds worth_sharing = kWorthSharing);
  // REQUIRES: no call is under way.
  ~ShardThreads();

  // Calls work(i) once for each i < n, beginning in ascending order, and returns when all have
  // returned. When calls throw, the others still run; then one of the exceptions is thrown again.
  void ForEach(size_t n, absl::FunctionRef<void(size_t)> work);
  // The same on the caller's thread alone.
  static void ForEachAlone(size_t n, absl::FunctionRef<void(size_t)> work);

  std::chrono::microseconds worth_sharing() const { return worth_sharing_; }

 private:
  // One call of ForEach, on the caller's stack. Guarded by mutex_.
  struct Round {
    absl::FunctionRef<void(size_t)> work;
    size_t items;
    size_t next = 0;     // the item that begins next
    size_t running = 0;  // items that have begun and not returned
    std::exception_ptr error;
  };
  void Loop();
  // Runs the next item of the round, without the lock meanwhile.
  // REQUIRES: one is left.
  void RunNext(Round* round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::microseconds worth_sharing_;
  Mutex mutex_;
  CondVar begun_, ended_;
  std::deque<Round*> rounds_ ABSL_GUARDED_BY(mutex_);  // with items that have not begun
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace sluice

// Runs tasks in the order in which they come, on threads of its own. At most `max_waiting` tasks
// wait for a thread.
//
// Thread safety: safe from any thread. No task may destroy the object.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {

class TaskThreads {
 public:
  // Starts at least one thread.
  TaskThreads(int threads, size_t max_waiting);
  // Runs the tasks that wait, then ends the threads.
  ~TaskThreads();

  // False, without the task, when all threads are busy and too many tasks wait.
  bool Add(std::function<void()> task);

 private:
  void Loop();

  const size_t max_tasks_;  // that run or wait
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice

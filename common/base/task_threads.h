// Runs tasks in the order in which they come, on threads of its own. Limits bound how many tasks
// wait for a thread: of all callers together, and of each caller.
//
// Memory: the waiting tasks, and an entry for each caller that has one.
//
// Thread safety: safe from any thread. No task may destroy the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {

class TaskThreads {
 public:
  // Starts at least one thread.
  TaskThreads(int threads, size_t max_waiting, size_t max_waiting_per_caller = SIZE_MAX);
  // Runs the tasks that wait, then ends the threads.
  ~TaskThreads();

  // False, without the task, when all threads are busy and too many tasks wait.
  bool Add(std::function<void()> task, const std::string& caller = "");

 private:
  struct Task {
    std::string caller;
    std::function<void()> run;
  };
  void Loop();

  const size_t max_tasks_;  // that run or wait
  const size_t max_per_caller_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> waiting_ ABSL_GUARDED_BY(mutex_);  // tasks_ of each caller
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice

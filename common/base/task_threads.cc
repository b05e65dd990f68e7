#include "common/base/task_threads.h"

#include <algorithm>
#include <utility>

namespace sluice {

TaskThreads::TaskThreads(int threads, size_t max_waiting)
    : max_tasks_(static_cast<size_t>(std::max(1, threads)) + max_waiting) {
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { Loop(); });
}

TaskThreads::~TaskThreads() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool TaskThreads::Add(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (running_ + tasks_.size() >= max_tasks_) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
  return true;
}

void TaskThreads::Loop() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ++running_;
    }
    task();
    MutexLock lock(&mutex_);
    --running_;
  }
}

}  // namespace sluice

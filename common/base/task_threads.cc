#include "common/base/task_threads.h"

#include <algorithm>
#include <utility>

namespace sluice {

TaskThreads::TaskThreads(int threads, size_t max_waiting, size_t max_waiting_per_caller)
    : max_tasks_(static_cast<size_t>(std::max(1, threads)) + max_waiting),
      max_per_caller_(max_waiting_per_caller) {
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

bool TaskThreads::Add(std::function<void()> task, const std::string& caller) {
  MutexLock lock(&mutex_);
  if (running_ + tasks_.size() >= max_tasks_) return false;
  const auto waiting = waiting_.find(caller);
  if (waiting != waiting_.end() && waiting->second >= max_per_caller_) return false;
  ++waiting_[caller];
  tasks_.push_back({caller, std::move(task)});
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
      const auto waiting = waiting_.find(tasks_.front().caller);
      if (--waiting->second == 0) waiting_.erase(waiting);
      task = std::move(tasks_.front().run);
      tasks_.pop_front();
      ++running_;
    }
    task();
    MutexLock lock(&mutex_);
    --running_;
  }
}

}  // namespace sluice

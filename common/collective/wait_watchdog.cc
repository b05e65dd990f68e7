#include "common/collective/wait_watchdog.h"

#include <algorithm>
#include <utility>

namespace sluice {

void WaitWatchdog::Start() {
  {
    MutexLock lock(&mutex_);
    stopping_ = false;
  }
  thread_ = std::thread([this] { Watch(); });
}

void WaitWatchdog::Stop() {
  if (!running()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.NotifyAll();
  }
  thread_.join();
}

void WaitWatchdog::Begin(TimePoint deadline, std::function<void()> abort) {
  MutexLock lock(&mutex_);
  abort_ = std::move(abort);
  deadline_ = deadline;
}

bool WaitWatchdog::End() {
  MutexLock lock(&mutex_);
  // Under the lock that Watch holds while it aborts: after End, no abort can hit the next wait.
  abort_ = nullptr;
  // Says once that the deadline has passed.
  return std::exchange(expired_, false);
}

void WaitWatchdog::Abort() {
  MutexLock lock(&mutex_);
  if (abort_ != nullptr) abort_();
}

void WaitWatchdog::Watch() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    // Begin wakes nobody, because waits are frequent and short. So the thread looks at least once
    // in the shortest timeout.
    std::chrono::nanoseconds pause = shortest_;
    if (abort_ != nullptr) {
      const std::chrono::nanoseconds left = deadline_ - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        expired_ = true;
        // Again in each turn until End: the wait may not have begun when it was aborted first.
        abort_();
      } else {
        pause = std::min(pause, left);
      }
    }
    stopping_changed_.WaitFor(&mutex_, pause);
  }
}

}  // namespace sluice

#include "client/background_loop.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// The loop looks at the clock this often while it waits, because a test may move the clock.
constexpr absl::Duration kLoopLook = absl::Milliseconds(50);

}  // namespace

BackgroundLoop::BackgroundLoop(Clock* clock, std::function<absl::Time()> work)
    : clock_(clock), work_(std::move(work)) {}

void BackgroundLoop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void BackgroundLoop::Wake() {
  {
    MutexLock lock(&mu_);
    woken_ = true;
  }
  wake_.NotifyAll();
}

void BackgroundLoop::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  // Without the lock, which the work may take to call Wake.
  if (thread_.joinable()) thread_.join();
}

void BackgroundLoop::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      // Cleared before the work, so that a Wake during the work is not lost.
      woken_ = false;
    }
    const absl::Time due = work_();
    MutexLock lock(&mu_);
    while (!woken_ && !stopping_) {
      if (due == absl::InfiniteFuture()) {
        wake_.Wait(&mu_);
        continue;
      }
      const absl::Duration left = due - clock_->Now();
      if (left <= absl::ZeroDuration()) break;
      wake_.WaitFor(&mu_, absl::ToChronoNanoseconds(std::min(left, kLoopLook)));
    }
  }
}

}  // namespace sluice

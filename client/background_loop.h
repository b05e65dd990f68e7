// A thread that repeats one piece of work: each time it is due, and each time somebody wakes it.
//
// Thread safety: any thread; Start and Stop on one. The work runs without a lock held. The lock is
// a leaf: Wake may be called under the owner's lock and by the work itself.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

class BackgroundLoop {
 public:
  // `work` returns when it is due next; InfiniteFuture: not before the next Wake. `clock` outlives
  // the loop.
  BackgroundLoop(Clock* clock, std::function<absl::Time()> work);
  ~BackgroundLoop() { Stop(); }

  // The work runs once at the start.
  void Start();
  // Makes the work due now. A Wake during the work makes it run again.
  void Wake();
  // Waits for the running work; none begins after this.
  void Stop();

 private:
  void Run();

  Clock* const clock_;
  const std::function<absl::Time()> work_;
  Mutex mu_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice

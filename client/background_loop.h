// A thread that repeats one function, both when it is due and when Wake is called.
//
// Thread safety: safe from any thread. Start and Stop belong to one thread. The work runs without a
// lock held; Wake may be called by the work itself.
//
// Lock order: a leaf. Wake may be called under the owner's lock.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

class BackgroundLoop {
 public:
  // `work` returns when it is due next, or InfiniteFuture to run only after a Wake. `clock`
  // outlives the loop.
  BackgroundLoop(Clock* clock, std::function<absl::Time()> work);
  ~BackgroundLoop() { Stop(); }

  // Starts the thread, which runs the work at once.
  void Start();
  // Makes the work due now. A Wake during the work makes it run again.
  void Wake();
  // Waits until running work has ended; no work begins after this.
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

#include "common/base/clock.h"

#include <chrono>
#include <thread>

#include "absl/time/clock.h"

namespace sluice {
namespace {
class RealClock : public Clock {
 public:
  // CLOCK_MONOTONIC. It is counted from the Unix epoch only because absl::Time needs an origin.
  absl::Time Now() override {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time WallNow() override { return absl::Now(); }
  void Sleep(absl::Duration d) override {
    if (d > absl::ZeroDuration()) std::this_thread::sleep_for(absl::ToChronoNanoseconds(d));
  }
};
}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace sluice

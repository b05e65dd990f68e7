#include "common/base/clock.h"

namespace sluice {
namespace {
class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  void Sleep(absl::Duration d) override { absl::SleepFor(d); }
};
}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace sluice

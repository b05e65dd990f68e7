#include "client/waiter.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

// Waits look at the clock this often, because a test may move the clock.
constexpr absl::Duration kWaiterLook = absl::Milliseconds(50);
// A wait spins this long, yielding to other threads. It takes about as long to sleep and be woken.
constexpr std::chrono::microseconds kLookAwake(50);
// How often a long wait is reported.
constexpr absl::Duration kLongWait = absl::Seconds(2);
constexpr absl::Duration kTellsEnd = absl::Seconds(5);  // a wait that says when it gives up

}  // namespace

void ChangeSignal::Notify() {
  changes_.fetch_add(1, std::memory_order_relaxed);
  notified_.NotifyAll();
}

void ChangeSignal::Wait(Mutex* mu, absl::Duration at_most,
                        std::chrono::steady_clock::time_point awake_until) {
  if (std::chrono::steady_clock::now() >= awake_until) {
    notified_.WaitFor(mu, absl::ToChronoNanoseconds(at_most));
    return;
  }
  // Relaxed is enough: the changed state is read under the lock, and the caller checks its
  // condition again, so it sees a change that is missed here.
  const uint64_t before = changes_.load(std::memory_order_relaxed);
  mu->Unlock();
  do {
    sched_yield();
  } while (changes_.load(std::memory_order_relaxed) == before &&
           std::chrono::steady_clock::now() < awake_until);
  mu->Lock();
}

absl::Status Waiter::Until(Mutex* mu, const std::function<bool()>& done,
                           const std::function<std::string()>& what) {
  const absl::Time begin = clock_->Now();
  waiting_for_ = what;
  waiting_since_ = begin;
  const auto awake_until = std::chrono::steady_clock::now() + kLookAwake;
  absl::Time told = begin;
  absl::Status status;
  while (!done()) {
    status = failure_;
    if (!status.ok()) break;
    const absl::Time now = clock_->Now();
    // A lost process excuses all of the time before the scheduler told of the loss.
    const absl::Duration left = timeout_ - (now - std::max(begin, excused_at_));
    if (left <= absl::ZeroDuration()) {
      status = absl::DeadlineExceededError(
          absl::StrCat(what(), " did not come within ", absl::FormatDuration(timeout_),
                       last_refusal_.empty() ? "" : "; last refusal: ", last_refusal_,
                       "; see that pserver's log, or raise train.step_timeout_s"));
      break;
    }
    if (on_long_wait_ && now - told >= kLongWait) {
      // There may be a newer route of which no pserver has told.
      told = now;
      on_long_wait_();
    }
    changed_->Wait(mu, std::min(left, kWaiterLook), awake_until);
  }
  waiting_for_ = nullptr;
  return status;
}

void Waiter::UntilDone(Mutex* mu, const std::function<bool()>& done) {
  while (!done()) changed_->Wait(mu, kWaiterLook, std::chrono::steady_clock::time_point());
}

void Waiter::Fail(const absl::Status& status) {
  // The first failure is the cause; later ones often follow from it.
  if (failure_.ok()) failure_ = status;
  changed_->Notify();
}

std::string Waiter::Describe() const {
  if (waiting_for_ == nullptr) return "";
  const absl::Time now = clock_->Now();
  const double seconds = absl::ToDoubleSeconds(now - waiting_since_);
  std::string text = absl::StrCat("waiting for ", waiting_for_(),
                                  seconds < 0.1 ? "" : absl::StrFormat(" for %.1f s", seconds));
  if (now - waiting_since_ < kTellsEnd || timeout_ == absl::InfiniteDuration()) return text;
  const absl::Duration left = timeout_ - (now - std::max(waiting_since_, excused_at_));
  absl::StrAppendFormat(&text, ", gives up in %.0f s", std::max(0.0, absl::ToDoubleSeconds(left)));
  return text;
}

}  // namespace sluice

// Bounds how long a question is repeated that the scheduler does not answer.
//
// When a scheduler dies, a standby takes over within seconds, and answers the question then.
//
// Thread safety: one thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace sluice {

class PatientQuestion {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  // The clock outlives the question.
  explicit PatientQuestion(Clock* clock) : clock_(clock) {}
  // To be called after each try that has failed. True when there was no answer (UNAVAILABLE), and
  // the first one of these tries in a row ended less than kPatience ago. Answers begin a new row
  // (Answered).
  bool MayRepeat(const absl::Status& failed) {
    if (!absl::IsUnavailable(failed)) return false;
    const absl::Time now = clock_->Now();
    if (silent_since_ == absl::InfiniteFuture()) silent_since_ = now;
    return now - silent_since_ < kPatience;
  }
  void Answered() { silent_since_ = absl::InfiniteFuture(); }

 private:
  Clock* const clock_;
  absl::Time silent_since_ = absl::InfiniteFuture();
};

}  // namespace sluice

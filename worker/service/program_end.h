// Ends a rank's job early, when its program has left its loop or a user has interrupted it, and
// knows where training then ends. Another rank's program may also have ended it.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/daemon/member_session.h"
#include "common/daemon/scheduler_client.h"
#include "worker/context/training_end.h"

namespace sluice {

class ProgramEnd {
 public:
  struct Options {
    std::string job_id;
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    std::function<MemberKey()> key;        // of the worker's present life
    SchedulerClient* scheduler = nullptr;  // like all pointers here, outlives this
    absl::Duration patience;               // how long an unanswered call is repeated
    Clock* clock = nullptr;
    const std::atomic<bool>* cancelled = nullptr;  // the rank stops
    // Called after end() has changed. May be null.
    std::function<void(const EarlyEnd& end)> ends;
  };
  explicit ProgramEnd(Options options) : options_(std::move(options)) {}

  // Call when the scheduler has said that training ends early.
  void Set(const EarlyEnd& end);
  const TrainingEnd& end() const { return end_; }

  // The program has left its loop; sync: after this global step of the job. Returns once the
  // scheduler knows. CANCELLED: the rank stops. Other errors: the scheduler refuses, or has not
  // answered for `patience`.
  absl::Status EndTraining(uint64_t steps);
  // The user has interrupted the program: the job is cancelled. Calls the scheduler once, and
  // returns its answer or the error of the call.
  absl::Status CancelJob();

 private:
  EndJobRequest Request() const;

  const Options options_;
  TrainingEnd end_;
};

}  // namespace sluice

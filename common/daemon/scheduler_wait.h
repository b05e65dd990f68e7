// The log lines of a process that waits for the scheduler, and its error when none has answered.
//
// Thread safety: WaitingLines is for one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

// The lines of one wait. Each says how long it has lasted. The first one says what is in the way,
// and so does one that finds another reason, and one in 30 s, for readers who see only the end of a
// log.
class WaitingLines {
 public:
  // `scheduler` outlives this. `wait`: how long the process waits at most.
  WaitingLines(SchedulerClient* scheduler, absl::Duration wait)
      : scheduler_(scheduler), wait_(wait) {}

  // Asks the scheduler's client what is in the way. Takes up to half a second.
  std::string Next(absl::Duration waited);

 private:
  SchedulerClient* const scheduler_;
  const absl::Duration wait_;
  std::string said_;  // the reason that was said last
  absl::Duration said_at_;
};

// The error of a caller that has waited for so long until the scheduler is ready.
absl::Status SchedulerDidNotAnswer(SchedulerClient* scheduler, absl::Duration waited);

}  // namespace sluice

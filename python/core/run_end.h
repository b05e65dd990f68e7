// How a program's loop ends, from what two threads say in either order: the end of its job's run
// and the end of the process's membership.
//
// Thread safety: safe from any thread.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace sluice {

class RunEnd {
 public:
  // `patience`: how long Stopped waits for the end of a run.
  explicit RunEnd(absl::Duration patience = absl::Seconds(3)) : patience_(patience) {}

  void Starts();
  // The run has ended. Returns what the loop ends with; nothing if another attempt of the job may
  // follow. If none does, the scheduler tells this process to stop.
  std::optional<absl::Status> Ended(const absl::Status& status);
  // The process is no member any more; OK: it was told to stop. A cluster is stopped as soon as its
  // job is done, so this waits for a run that may be about to end. Returns what the loop ends with;
  // nothing if the run has ended well, so that its end is that of the loop.
  std::optional<absl::Status> Stopped(const absl::Status& status);

 private:
  const absl::Duration patience_;
  Mutex mutex_;
  CondVar ended_;
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> last_ ABSL_GUARDED_BY(mutex_);  // of the last run
};

}  // namespace sluice

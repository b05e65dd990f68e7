// Follows a job to its end.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/screen/progress.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {

struct WatchOptions {
  Clock* clock = nullptr;  // required
  SchedulerClient* client = nullptr;
  std::string job_id;
  // Called with each status that the scheduler tells; may be null.
  std::function<void(const JobStatus&)> on_status;
  ProgressPrinter* printer = nullptr;
  // Returns an error when a process of the cluster has ended; the job then has `grace` to end by
  // itself. May be null.
  std::function<absl::Status()> check_cluster;
  // Called once, when the job has left the queue: all members have registered. May be null.
  std::function<void()> on_started;
  // Says how the process ended that the message of a failed job names; "" when it names none. Null:
  // check_cluster says it.
  std::function<std::string(const std::string& message)> explain;
  // Returns true when no process is left that could end the job: there is no grace then. May be
  // null.
  std::function<bool()> hopeless;
  // Returns true once the user has asked to stop. May be null.
  std::function<bool()> interrupted;
  bool cancel_on_interrupt = false;  // else an interrupt only ends the watching
  // A job that is cancelled first makes a checkpoint, if it has finished a step: for this long at
  // most, and not once the user has lost patience.
  absl::Duration save_grace = absl::Seconds(30);
  std::function<bool()> impatient;  // may be null
  std::string saves_nothing;        // why the job makes no checkpoints; empty: it makes some
  absl::Duration grace = absl::Seconds(10);
  absl::Duration unreachable_after = absl::Seconds(20);
};

// Returns the job's last status, after the job has ended or an interrupt has ended the watching.
// UNAVAILABLE when the scheduler does not answer; INTERNAL when a process of the cluster has ended
// and the job has not.
absl::StatusOr<JobStatus> WatchUntilEnd(const WatchOptions& options);

// Returns the exit code for `status`, and prints an error unless the job is done.
int ReportEnd(const absl::StatusOr<JobStatus>& status);
// Prints "sluice: note" on standard error, unless it is empty.
void PrintNote(const std::string& note);
// Prints "sluice: message" on standard error. Returns the exit code of a failed call: 3 when the
// scheduler did not answer, 2 for INVALID_ARGUMENT and NOT_FOUND, else 1.
int ReportError(const absl::Status& status);

}  // namespace sluice::cli

// Follows a job to its end.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/progress.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {

struct WatchOptions {
  SchedulerClient* client = nullptr;
  std::string job_id;
  ProgressPrinter* printer = nullptr;
  // Not OK: a part of the cluster is gone; the job gets `grace` to end by itself. Null: never
  // asked.
  std::function<absl::Status()> check_cluster;
  // True when nobody is left who would end the job: no grace then. May be null.
  std::function<bool()> hopeless;
  // True once the user asked to stop.
  std::function<bool()> interrupted;
  bool cancel_on_interrupt = false;  // else an interrupt only ends the watching
  absl::Duration grace = absl::Seconds(10);
  absl::Duration unreachable_after = absl::Seconds(20);
};

// The last status: of a job that has ended, or of one that was no longer watched after an
// interrupt. Errors: UNAVAILABLE when the scheduler is silent, INTERNAL when the cluster broke and
// the job did not end.
absl::StatusOr<JobStatus> WatchUntilEnd(const WatchOptions& options);

// Exit code and message on stderr of how `status` ended.
int ReportEnd(const absl::StatusOr<JobStatus>& status);
// Exit code of a failed call: 3 for UNAVAILABLE, 2 for INVALID_ARGUMENT, else 1; prints "sluice:
// message".
int ReportError(const absl::Status& status);

}  // namespace sluice::cli

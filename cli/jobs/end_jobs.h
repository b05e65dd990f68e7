// Ends the jobs of a cluster that is about to stop.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {

struct EndJobsOptions {
  Clock* clock = nullptr;             // required
  SchedulerClient* client = nullptr;  // required
  // Running jobs first make a checkpoint, if they have finished a step and have all workers: all
  // of them together for this long at most. Zero: none does.
  absl::Duration save_grace = absl::Seconds(30);
  absl::Duration end_grace = absl::Seconds(10);  // for their ends
  std::function<void(const std::string& line)> say;
};

// Cancels all jobs, and says of each one how to continue it. Does nothing when the scheduler does
// not answer.
void EndJobs(const EndJobsOptions& options);

}  // namespace sluice::cli

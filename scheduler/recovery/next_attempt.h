// Ends the present attempt of a job, and begins its next one when the members are there.
//
//   a. RollBack  all ranks are withdrawn, the pservers drop the tables (RECOVERING).
//   b. Advance   replacements are there, the survivors have stopped, and no manifest is being
//                written: the next attempt takes workers and pservers, with a new instance, a
//                higher generation and the newest checkpoint.
//
// The next attempt avoids pservers that are draining, unless the job keeps its pservers. A job that
// shrinks (on_worker_loss) begins it at a checkpoint that was made for it (RankRemoval), if it can.
// If lost workers are not replaced in time while it waits, it continues with those that it has.
//
// JobRecovery says what a job waits for, and for how long.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/recovery/attempt_members.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/recovery/job_adoption.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_queue.h"
#include "scheduler/registry/report_requests.h"

namespace sluice {

class NextAttempt {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    ReportRequests* requests = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
    CheckpointLifecycle* checkpoints = nullptr;
    AttemptMembers* attempts = nullptr;
    JobAdoption* adoption = nullptr;
  };
  // `wait`: how long a job waits for members, unless it has its own bound (recovery.wait_s).
  NextAttempt(absl::Duration wait, Parts parts) : wait_(wait), parts_(parts) {}

  // After an error the job cannot continue.

  // Ends the present attempt, of which the job keeps only its checkpoints, and begins the next one
  // if it can. Another loss while the job waits changes only what it waits for.
  absl::Status RollBack(Job* job, absl::Time now);
  // The same for an attempt that could continue, because a user wants another one, with this many
  // workers. `what`: see JobRecovery::Plan.
  absl::Status Replace(Job* job, uint32_t worker_num, const std::string& what, absl::Time now);
  // Takes this many ranks from the job's next attempt, but leaves at least one. Call RollBack next;
  // nothing is undone if the newest checkpoint was made for this (RankRemoval).
  void Shrink(Job* job, uint32_t ranks);
  // Begins the next attempt of a job that awaits members when they are there. DEADLINE_EXCEEDED:
  // the members did not come in time. Does nothing for other jobs.
  absl::Status Advance(Job* job, absl::Time now);

  // Call when the job has no present attempt and awaits the members of its next one (RECOVERING).
  void Await(Job* job) { waiting_.push_back(job); }
  // The job no longer waits, because it is over.
  void Forget(const Job* job);
  // The jobs that await members.
  const std::vector<Job*>& waiting() const { return waiting_; }

 private:
  void EndPresent(Job* job, absl::Time now);
  // Sets where the next attempt begins.
  absl::Status ChooseBeginning(Job* job);
  void CountAttempt(Job* job);

  const absl::Duration wait_;
  const Parts parts_;
  std::vector<Job*> waiting_;
};

}  // namespace sluice

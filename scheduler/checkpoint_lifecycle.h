// Leads the checkpoints of running jobs: passes reports to JobCheckpoints, and tells members and the
// job's output what it has decided.
//
// Only the members concerned are told: rank 0 of a change of what is asked (its assignment), the
// pservers of numbers that are over (CutOrder).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core_effects.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"
#include "scheduler/pause_detector.h"

namespace sluice {

class CheckpointLifecycle {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  // A checkpoint is given up when it makes no progress for `wait`.
  CheckpointLifecycle(absl::Duration wait, Parts parts) : wait_(wait), parts_(parts) {}

  // The job's run has just begun. Does nothing for a job that makes no checkpoints.
  void Begin(Job* job, absl::Time now);
  // The job has gone on to another phase.
  void PhaseChanged(Job* job, absl::Time now);
  // Reports of the job's pservers and workers.
  void TakeHosted(const Member& pserver, const HostedCut& cut, Job* job, absl::Time now);
  void TakeWorker(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now);
  void Tick(Job* job, absl::Time now);
  // The output of a checkpoint is written or has failed. `warning` may be empty.
  void Written(Job* job, uint64_t number, const absl::Status& status, const std::string& warning,
               absl::Time now);
  // The job is over.
  void End(Job* job, absl::Time now);
  // Asks for a checkpoint, or for the outcome of the one with this number.
  absl::StatusOr<CheckpointJobReply> Demand(Job* job, uint64_t number, absl::Time now);

 private:
  // Acts on what JobCheckpoints has decided.
  void Apply(Job* job, absl::Time now);
  void WriteManifest(const Job& job, Manifest manifest, absl::Time cut_at);
  void DiscardFiles(const Job& job, const JobCheckpoints::Discard& discard, absl::Time now);

  const absl::Duration wait_;
  const Parts parts_;
};

}  // namespace sluice

// Leads the checkpoints of running jobs: passes reports to JobCheckpoints, and tells members and
// the job's output what it has decided.
//
// Only the members concerned are told: rank 0 (sync) or all ranks (async, Geo, and sync after a
// loss) of a change of what is asked (their assignments), the pservers of cuts to begin and of
// numbers that are over (CutOrder).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"

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

  // A run of the job has just begun: its first one, or the run of its next attempt. Does nothing
  // for a job that makes no checkpoints.
  void Begin(Job* job, absl::Time now);
  // Call when a run that an earlier scheduler began continues with all its members. `newest`: where
  // the job would begin again. Checkpoints up to number `over` have ended, and so have the requests
  // of that scheduler. Does nothing for a job that makes no checkpoints.
  void Adopt(Job* job, const absl::StatusOr<std::unique_ptr<const ResumePoint>>& newest,
             uint64_t over, absl::Time now);
  // The job's run has ended early. Gives the open checkpoint up, unless its manifest is being
  // written.
  void Interrupt(Job* job, absl::Time now);
  // Call when a member is lost that the job needs only for an open checkpoint.
  void MemberLost(Job* job, const Member& member, absl::Time now);
  // Returns the newest checkpoint, from which the job continues after an interruption; null if it
  // has made none.
  std::unique_ptr<const ResumePoint> NewestPoint(const Job& job) const;
  // The folder of the newest checkpoint that the present attempt has completed; empty: none.
  static std::string NewestOfInstance(const Job& job);
  // Adds the orders about the job's checkpoints to what members are told: pserver `index` of the
  // job, and a worker whose `assignment` has its rank.
  static void AddOrder(const Job& job, uint32_t index, PollReply* reply);
  static void AddAsked(const Job& job, WorkerAssignment* assignment);
  // Call when the job has moved on to another phase.
  void PhaseChanged(Job* job, absl::Time now);
  // Call before the report of rank 0 that ends a training phase is taken.
  void TakeNamed(Job* job, const PhaseReport& report, absl::Time now);
  // All ranks have ended a training phase, which waits while the job is held (JobRun::Hold). May be
  // called again for the same phase.
  void TrainingEnds(Job* job, absl::Time now);
  // Reports of the job's pservers and workers.
  void TakeHosted(const Member& pserver, const HostedCut& cut, Job* job, absl::Time now);
  void TakeWorker(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now);
  // The rank's worker is lost, and another life of the rank continues. A checkpoint that needs the
  // lost one's part is given up.
  void RankLost(Job* job, uint32_t rank, absl::Time now);
  // A sync job will continue without a lost rank, from a checkpoint after the last step that
  // closes: nothing else is asked for until then (JobCheckpoints::Hold, CutAfterLoss).
  void Hold(Job* job, absl::Time now);
  uint64_t CutAfterLoss(Job* job, uint64_t step, std::map<uint32_t, WorkerState> lost,
                        absl::Time now);
  // The pserver is lost, and another process takes over its shards. The open checkpoint is given up
  // unless its manifest is being written.
  void PserverVacant(Job* job, uint32_t index, absl::Time now);
  void Tick(Job* job, absl::Time now);
  // The output of a checkpoint is written or has failed. `warning` may be empty.
  void Written(Job* job, uint64_t number, const absl::Status& status, const std::string& warning,
               absl::Time now);
  // The job is over.
  void End(Job* job, absl::Time now);
  // OK when the job makes checkpoints now; with `another`, when another one can begin.
  // FAILED_PRECONDITION and UNAVAILABLE say why not.
  static absl::Status CheckMakes(const Job& job, bool another = true);
  // Asks for a checkpoint, or for the outcome of the one with this number.
  absl::StatusOr<CheckpointJobReply> Demand(Job* job, uint64_t number, absl::Time now);

 private:
  static JobCheckpoints::Options OptionsOf(const Job& job);
  absl::StatusOr<CheckpointState> StateOf(const Job& job, absl::Time now) const;
  void NoteProgress(Job* job, absl::Time now) const;
  void NoteTraining(Job* job) const;
  // Acts on what JobCheckpoints has decided.
  void Apply(Job* job, absl::Time now);
  void WriteManifest(const Job& job, Manifest manifest, absl::Time cut_at);
  void DiscardFiles(const Job& job, const JobCheckpoints::Discard& discard, absl::Time now);

  const absl::Duration wait_;
  const Parts parts_;
};

}  // namespace sluice

// Leads a job from its start to its end, as its members report and time passes.
//
//   1. Start             takes workers, places shards, asks the pservers to open the tables
//                        (STARTING)
//   2. CheckStarting     every pserver has opened them and the output folder is ready: the workers
//                        get their assignments (RUNNING)
//   3. TakePhaseReport   the ranks lead the job through its phases
//   4. CheckFinishing    all phases are done, the last reports are in and the checkpoint of the last
//                        step, if there is one, is over
//   5. End               outcome and result are fixed, the workers are withdrawn
//   6. DropWhenReleased  the last worker has stopped: the pservers drop the tables
//   7. OutputEnded       the result is written: the state becomes the outcome
//
// A member's event that a job cannot survive ends the job (End). Nothing here looks at other jobs.
//
// Invariants: a worker serves at most one job; only the state of an ended job changes.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/checkpoint_lifecycle.h"
#include "scheduler/core_effects.h"
#include "scheduler/job_directory.h"
#include "scheduler/job_queue.h"
#include "scheduler/membership.h"
#include "scheduler/pause_detector.h"
#include "scheduler/report_requests.h"

namespace sluice {

class JobLifecycle {
 public:
  struct Options {
    absl::Duration lease, heartbeat;  // of the members
    absl::Duration wait;              // bound on opening the tables
    absl::Duration report_wait;       // bound on waiting for the last reports
    uint64_t first_incarnation = 1;
    // Fills num_shards and route of a job that is about to start. Pure.
    std::function<absl::Status(const std::vector<std::string>& pservers, JobSpec* spec)> place;
  };
  // The parts of the core that the lifecycle works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    JobDirectory* jobs = nullptr;
    ReportRequests* requests = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  JobLifecycle(Options options, Parts parts)
      : options_(std::move(options)),
        parts_(parts),
        checkpoints_(options_.wait, {parts.members, parts.pauses, parts.effects}) {}

  // REQUIRES: the job is queued, all pservers are alive and worker_num workers are free.
  void Start(Job* job, absl::Time now);
  // Does nothing when the job is over.
  void End(Job* job, JobState outcome, const std::string& message, absl::Time now);

  // Takes a pserver's report on a job.
  void TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job, absl::Time now);
  // Takes the report of a worker that is allocated to the job.
  void TakeProgress(const Member& worker, const WorkerProgress& progress, Job* job, absl::Time now);
  // Takes a rank's report that a phase has ended. Not OK: the report is refused and changes
  // nothing. REQUIRES: rank < worker_num.
  absl::Status TakePhaseReport(Job* job, uint32_t rank, const PhaseReport& report, absl::Time now);
  // Notes that the rank has been told that the job is over.
  void TellEnd(RankSlot* slot);
  // Ends the job when all phases are done and either nobody owes it a report or time is up.
  void CheckFinishing(Job* job, absl::Time now);
  // Handles the loss of a member that serves the job.
  void MemberLost(Job* job, const Member& member, absl::Time now);
  // Takes a rank's part of a checkpoint.
  void TakeCut(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now);
  // Asks for a checkpoint now (number 0), or for the outcome of an earlier one.
  absl::StatusOr<CheckpointJobReply> Checkpoint(Job* job, uint64_t number, absl::Time now);
  // Checks what depends on time. Called several times a second.
  void Tick(Job* job, absl::Time now);

  // The job's folder is ready (OutputBegun); its files are complete or failed (OutputEnded).
  void OutputBegun(Job* job, absl::Time now);
  void OutputEnded(Job* job, const absl::Status& status);
  // A checkpoint is in force, or could not be put in force.
  void CheckpointWritten(Job* job, uint64_t number, const absl::Status& status,
                         const std::string& warning, absl::Time now);

 private:
  void CheckStarting(Job* job, absl::Time now);
  void Run(Job* job, absl::Time now);
  void AskForReports(Job* job);
  // Takes a report that does not name the job; ends the job when the worker has given it up.
  void CheckServing(Job* job, const Member& worker, RankSlot* slot, absl::Time now);
  void Withdraw(RankSlot* slot);
  void Release(Job* job, RankSlot* slot);
  // Tells the pservers to drop the tables when no rank serves any more.
  void DropWhenReleased(Job* job, absl::Time now);
  void TellPservers(const Job& job);
  void WriteScalars(const Job& job, std::vector<Scalar> points, absl::Time now);

  const Options options_;
  const Parts parts_;
  CheckpointLifecycle checkpoints_;
  uint64_t next_incarnation_ = options_.first_incarnation;
};

}  // namespace sluice

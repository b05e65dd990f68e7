// Leads a job from its start to its end, as its members report and time passes.
//
//   1. Start             takes workers, places shards, asks the pservers to open the tables
//                        (STARTING)
//   2. CheckStarting     every pserver has opened them and the output folder is ready: the workers
//                        get their assignments (RUNNING)
//   3. TakePhaseReport   the ranks lead the job through its phases
//   4. CheckFinishing    all phases are done, the last reports are in, and the checkpoint of the
//                        last step, if there is one, is over
//   5. End               outcome and result are fixed, the workers are withdrawn
//   6. DropWhenReleased  the last worker has stopped: the pservers drop the tables
//   7. OutputEnded       the result is written: the state becomes the outcome
//
// A job continues in place after most losses of members (JobLosses). Others lead from 1 to 4 to a
// new attempt (NextAttempt), then to 2. A scheduler that takes over from an earlier one continues a
// running attempt from its records (JobAdoption). A user can ask for a new attempt with other
// members (AttemptPlans).
//
// An event that a job cannot survive ends it (End). Nothing here looks at other jobs.
//
// Invariants: only the state of an ended job changes.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/recovery/attempt_members.h"
#include "scheduler/recovery/attempt_plans.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/recovery/deletion_lifecycle.h"
#include "scheduler/recovery/job_adoption.h"
#include "scheduler/recovery/job_losses.h"
#include "scheduler/recovery/next_attempt.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_directory.h"
#include "scheduler/registry/job_queue.h"
#include "scheduler/registry/job_records.h"
#include "scheduler/registry/report_requests.h"

namespace sluice {

class JobLifecycle {
 public:
  struct Options {
    absl::Duration lease, heartbeat;  // of the members
    absl::Duration wait;              // bound on opening the tables
    absl::Duration report_wait;       // bound on waiting for the last reports
    uint64_t first_id = 1;            // of incarnations and of instances
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
  JobLifecycle(Options options, Parts parts);

  // REQUIRES: the job is queued, all pservers are alive and worker_num workers are free.
  void Start(Job* job, absl::Time now);
  // Continues a job that an earlier scheduler began; the job awaits members, and its next attempt
  // begins at its point. Members that still run the attempt of the earlier scheduler drop it when
  // they register.
  // REQUIRES: the job is new here; its pservers are chosen, and its attempt has its point.
  void Restore(Job* job, const Recovery& counts, absl::Time now);
  // As Restore, but the attempt itself continues (JobAdoption::Begin).
  absl::Status Adopt(Job* job, const Recovery& counts, const StoredRun& run,
                     std::unique_ptr<const ResumePoint> began_at, JobAdoption::Newest* newest,
                     absl::Time now);
  bool adopted(const Job& job) const { return adoption_.adopted(job); }
  // Takes the registration of a member that holds something. True when the member serves a job with
  // it.
  bool TakeBack(Member* member, absl::Time now);
  absl::StatusOr<NextTaskReply> NextTask(Job* job, const NextTaskRequest& request, absl::Time now);
  // Writes the result of a job that was over when this scheduler began.
  void WriteResultAgain(Job* job, absl::Time now);
  // Begins the next attempts of the jobs that have all the members they were waiting for, and
  // reserves free workers for the others. To be called when members have changed, before workers
  // are given to queued jobs.
  void RecoverJobs(absl::Time now);
  // Gives the job's next attempt a number that no other instance of a job has.
  void SetNewInstance(Job* job) { attempts_.SetNewInstance(job); }
  // Does nothing when the job is over.
  void End(Job* job, JobState outcome, const std::string& message, absl::Time now);

  // Takes a pserver's report on a job.
  void TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job, absl::Time now);
  // Takes the report of a worker that is allocated to the job.
  void TakeProgress(const Member& worker, const WorkerProgress& progress, Job* job, absl::Time now);
  // Takes what a worker had done when it failed, for the job's result.
  void TakeLastProgress(uint64_t member_id, const WorkerProgress& progress, const Job& job);
  // Takes a rank's report that a phase has ended. Not OK: the report is refused and changes
  // nothing.
  // REQUIRES: rank < worker_num.
  absl::Status TakePhaseReport(Job* job, uint32_t rank, const PhaseReport& report, absl::Time now);
  // Takes what the rank reports of its steps. Reports that came before change nothing.
  void TakeLosses(Job* job, uint32_t rank,
                  const google::protobuf::RepeatedPtrField<StepLoss>& losses, absl::Time now);
  // The user's program ends the training (JobRun::EndEarly); every rank is told. A call that brings
  // no news changes nothing. Not OK: as JobRun::CheckEarlyEnd, or the job's mode has no early end.
  absl::Status EndEarly(Job* job, EarlyEnd end, absl::Time now);
  // Notes that the rank has been told that the job is over.
  void TellEnd(RankSlot* slot);
  // Ends the job when all phases are done and either nobody owes it a report or time is up.
  void CheckFinishing(Job* job, absl::Time now);
  // Handles the loss of a member that serves the job.
  void MemberLost(Job* job, const Member& member, absl::Time now);
  // Gives new members to the jobs that lack a worker or a pserver, which come before queued jobs.
  void FillVacancies(absl::Time now);
  // Takes a rank's part of a checkpoint.
  void TakeCut(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now);
  // Takes what a rank says of the group that keeps the dense tables.
  void TakeGroup(const Member& worker, const RankGroupReport& report, Job* job, absl::Time now);
  // Asks for a checkpoint now (number 0), or for the outcome of an earlier one.
  absl::StatusOr<CheckpointJobReply> Checkpoint(Job* job, uint64_t number, absl::Time now);
  // Deletes rows (DeletionLifecycle::Begin).
  absl::StatusOr<DeleteRowsReply> DeleteRows(Job* job, const std::string& table,
                                             std::vector<uint64_t> keys, absl::Time now) {
    return deletions_.Begin(job, table, std::move(keys), now);
  }
  // Plans a next attempt with this many workers (AttemptPlans::Scale).
  absl::Status Scale(Job* job, uint32_t worker_num, absl::Time now) {
    return plans_.Scale(job, worker_num, now);
  }
  // Call when pservers begin or cease to drain. Running jobs leave those that drain.
  void DrainingChanged(absl::Time now);
  // An operator asks again that the jobs on the pserver leave it.
  void DrainAgain(uint32_t pserver);
  // The jobs whose tables the pserver holds, is to open, or has to open again if others cannot.
  std::vector<std::string> JobsOn(uint32_t pserver) const;
  // Returns why no job on the draining pserver leaves it, to tell the operator. Empty if no job is
  // there, or some are about to leave.
  std::string WhyAllStay(uint32_t pserver);
  // Checks what depends on time. Called several times a second.
  void Tick(Job* job, absl::Time now);

  // The job's folder is ready (OutputBegun); its files are complete or failed (OutputEnded). Before
  // that: their place does not answer (OutputAway).
  void OutputBegun(Job* job, absl::Time now);
  void OutputAway(Job* job, const absl::Status& why);
  void OutputEnded(Job* job, const absl::Status& status);
  // A checkpoint is in force, or could not be put in force.
  void CheckpointWritten(Job* job, uint64_t number, const absl::Status& status,
                         const std::string& warning, absl::Time now);

 private:
  // The attempt cannot continue; the job's next one begins at its newest checkpoint.
  void RollBack(Job* job, absl::Time now);
  // The same for an adopted attempt that cannot continue.
  void RefuteAdoption(Job* job, const absl::Status& why, absl::Time now);
  // Refutes an adopted attempt when a worker's call that was refused with `error` shows that the
  // records were not complete. False when the error is the worker's own mistake.
  bool Doubt(Job* job, const absl::Status& error, absl::Time now);
  // Begins the job's next attempt when its members are there; ends it when they did not come.
  void Recover(Job* job, absl::Time now);
  // Moves to the attempt that a user asked for when its checkpoint is complete.
  void AdvancePlan(Job* job, absl::Time now);
  // On an error, ends the job. A job moving to a requested attempt returns to its former members
  // instead.
  void EndUnless(const absl::Status& status, Job* job, absl::Time now);
  // True when the job had former members to return to.
  bool GoBack(const absl::Status& why, Job* job, absl::Time now);
  bool UsesPserver(const Job& job, uint32_t rank) const;
  // Lets a training phase end that no checkpoint needs any more. True when the next phase begins.
  bool ReleasePhase(Job* job, absl::Time now);
  void CheckHeld(Job* job, absl::Time now);
  // Removes the models of earlier epochs that neither the job nor its checkpoints need any more.
  void DropModels(const Job& job, absl::Time now);
  // Acts on the end of the phase `before`, if it has ended, or on a failure.
  void PhaseMayHaveEnded(Job* job, Phase::Kind before, bool advanced, absl::Time now);
  // Warns once of each table that is nearly full.
  void WarnOfLimits(const HostedJob& hosted, Job* job);
  void CheckStarting(Job* job, absl::Time now);
  void Run(Job* job, absl::Time now);
  void AskForReports(Job* job);
  // Does what can be done now for the job's vacant ranks and pservers.
  void AdvanceLosses(Job* job, absl::Time now);
  // Takes a report that does not name the job; ends the job when the worker has given it up.
  void CheckServing(Job* job, const Member& worker, RankSlot* slot, absl::Time now);
  // Tells the pservers to drop the tables when no rank serves any more.
  void DropWhenReleased(Job* job, absl::Time now);

  const Options options_;
  const Parts parts_;
  CheckpointLifecycle checkpoints_;
  DeletionLifecycle deletions_;
  AttemptMembers attempts_;
  JobAdoption adoption_;
  NextAttempt next_attempt_;
  AttemptPlans plans_;
  JobLosses losses_;
};

}  // namespace sluice

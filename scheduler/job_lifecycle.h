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
// A lost worker's rank is given to another worker (RankReplacement), and in async and Geo another
// process takes over the shards of a lost pserver (ShardTakeover). Other losses lead from 1 to 4 to
// a new attempt (member_loss.h):
//
//   a. RollBack          all ranks are withdrawn, the pservers drop the tables (RECOVERING)
//   b. Recover           replacements are there, the survivors have stopped: as 1, with a new
//                        instance, a higher generation and the newest checkpoint; then 2
//
// A scheduler that takes over from an earlier one leads a running attempt on from its records:
//
//   i.   Adopt           the run is where its records say (RUNNING); its workers' calls are
//                        answered
//   ii.  TakeBack        members that still serve the attempt register, and keep what they hold
//   iii. FinishAdoption  all are there: checkpoints go on. If one does not come, or comes back with
//                        empty hands, a. follows
//
// An event that a job cannot survive ends it (End). Nothing here looks at other jobs.
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
#include "scheduler/job_records.h"
#include "scheduler/membership.h"
#include "scheduler/pause_detector.h"
#include "scheduler/rank_replacement.h"
#include "scheduler/report_requests.h"
#include "scheduler/shard_takeover.h"

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
  JobLifecycle(Options options, Parts parts)
      : options_(std::move(options)),
        parts_(parts),
        checkpoints_(options_.wait, {parts.members, parts.pauses, parts.effects}),
        replacement_(options_.wait, {parts.members, parts.queue, parts.pauses, parts.effects}),
        takeover_(options_.wait, {parts.members, parts.pauses, parts.effects}) {}

  // REQUIRES: the job is queued, all pservers are alive and worker_num workers are free.
  void Start(Job* job, absl::Time now);
  // Leads a job on that an earlier scheduler began: it awaits members, and its next attempt begins
  // at `resume`. Members that still run the attempt of the earlier scheduler drop it when they
  // register. REQUIRES: the job is new here; pserver_ranks and resume are set.
  void Restore(Job* job, const Recovery& counts, absl::Time now);
  // As Restore, but the attempt itself goes on. `began_at`: where it began; null: at the beginning.
  // `newest`: where the next one would begin. Not OK: the records do not say enough; nothing has
  // changed, and began_at and newest are not used.
  absl::Status Adopt(Job* job, const Recovery& counts, const StoredRun& run,
                     std::unique_ptr<const ResumePoint> began_at,
                     absl::StatusOr<std::unique_ptr<const ResumePoint>>* newest, absl::Time now);
  // A member has registered with what it holds. True when it serves a job with that.
  bool TakeBack(Member* member, absl::Time now);
  // A worker's call shows that the records of an adopted attempt were not complete: it rolls back.
  // False when the attempt is not an adopted one.
  bool RefuteAdoption(Job* job, const absl::Status& error, absl::Time now);
  absl::StatusOr<NextTaskReply> NextTask(Job* job, const NextTaskRequest& request, absl::Time now);
  // Writes the result of a job that was over when this scheduler began.
  void WriteResultAgain(Job* job, absl::Time now);
  // Begins the next attempts of the jobs that have all the members they were waiting for, and
  // reserves free workers for the others. To be called when members have changed, before workers
  // are given to queued jobs.
  void RecoverJobs(absl::Time now);
  // Gives the job's next attempt a number that no other instance of a job has.
  void SetNewInstance(Job* job);
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
  // Gives new members to the jobs that lack a worker or a pserver, which come before queued jobs.
  void FillVacancies(absl::Time now);
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
  // Takes workers, places shards, and asks the pservers to open the tables.
  absl::Status BeginAttempt(Job* job, absl::Time now);
  // The workers of the job's next attempt, in the order of their ranks in the cluster.
  std::vector<Member*> WorkersFor(const Job& job) const;
  // Begins the job's next attempt when its members are there; ends it when they did not come.
  void Recover(Job* job, absl::Time now);
  // Whether a member that registers takes a place of the adopted attempt that it had before.
  // Refused: the place is its own and still free, but it no longer serves it.
  enum class Claim { kNone, kTaken, kRefused };
  static Claim TakeBackRank(Job* job, Member* worker);
  static Claim TakeBackTables(Job* job, const Member& pserver);
  void FinishAdoption(Job* job, absl::Time now);
  // The members that are still missing are not awaited any more.
  void DropAdoption(Job* job);
  void TellWhoIsMissing(Job* job);
  // Ends the present attempt, of which the job keeps only its checkpoints.
  void RollBack(Job* job, absl::Time now);
  void CountRollback(Job* job);
  // Allocates free workers to a job that waits for some.
  void ReserveWorkers(Job* job);
  // Gives workers back that the job has reserved.
  void GiveBackWorkers(Job* job);
  // Lets a training phase end that no checkpoint needs any more. True when the next phase begins.
  bool ReleasePhase(Job* job, absl::Time now);
  void CheckHeld(Job* job, absl::Time now);
  // Acts on the end of the phase `before`, if it has ended, or on a failure.
  void PhaseMayHaveEnded(Job* job, Phase::Kind before, bool advanced, absl::Time now);
  void CheckStarting(Job* job, absl::Time now);
  void Run(Job* job, absl::Time now);
  void AskForReports(Job* job);
  void ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now);
  // Does what can be done now for the job's vacant ranks.
  void AdvanceReplacement(Job* job, absl::Time now);
  void TakeOverShards(Job* job, const Member& lost, const std::string& why, absl::Time now);
  // Does what can be done now for the job's vacant pservers.
  void AdvanceTakeover(Job* job, absl::Time now);
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
  RankReplacement replacement_;
  ShardTakeover takeover_;
  uint64_t next_incarnation_ = options_.first_id;
  uint64_t next_instance_ = options_.first_id;
  std::vector<Job*> recovering_;  // those that await members
};

}  // namespace sluice

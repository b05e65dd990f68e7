// The scheduler's record of one job, from its submission until it is forgotten.
//
//   QUEUED -> STARTING (pservers open its tables) -> RUNNING (phases) -> over
//                |                                      |
//                +-> RECOVERING (a member was lost,  <--+     RECOVERING -> RUNNING
//                     or a user wants other members)
//
// RECOVERING has two halves: first the job waits for replacements and no pserver holds its tables,
// then the pservers open the tables of its next attempt (`hosted`).
//
// JobAdmission admits a job, and JobLifecycle leads it through these states. First `outcome` is
// set: the job is over. `state` becomes `outcome` only when result.json is written, so that a
// caller that sees a job done finds its result. A settled job does not change any more.
//
// Memory: a settled job keeps its newest steps and its run for callers that still follow it.
// ArchiveJob later keeps only the status.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job_checkpoints.h"
#include "scheduler/job_opening.h"
#include "scheduler/job_pservers.h"
#include "scheduler/job_ranks.h"
#include "scheduler/job_recovery.h"
#include "scheduler/job_run.h"
#include "scheduler/membership.h"
#include "scheduler/rank_cards.h"
#include "scheduler/resume_point.h"
#include "scheduler/step_reports.h"

namespace sluice {

struct CheckpointOrders {
  JobCheckpoints::Asked asked;
  JobCheckpoints::Ordered ordered;
  uint64_t over = 0;
};

struct Job {
  std::string job_id;
  JobConfig config;  // effective; constant
  JobSpec spec;      // the route is set when it starts; its config names checkpoint.dir
  // Where the present attempt begins; null: at the beginning.
  std::unique_ptr<const ResumePoint> resume;
  std::string resumed_from;  // folder of the checkpoint that it was submitted with; empty: none
  // Damaged checkpoints that were passed over, by their save_ids: they do not count towards `keep`.
  std::vector<std::string> damaged;
  JobState state = JOB_QUEUED;
  JobState outcome = JOB_STATE_UNSPECIFIED;
  std::string message;
  std::vector<std::string> warnings;  // about its submission and its output
  // Only the job's record needs these (JobRecords).
  uint64_t order = 0;               // of submission
  std::string request_id;           // of the call that submitted it; may be empty
  bool allow_older = false;         // of that call
  bool begun = false;               // it has been started once
  std::vector<uint64_t> instances;  // of all attempts
  uint64_t status_version = 1;      // raised by CoreEffects::StatusChanged

  // Queued.
  uint32_t queue_position = 0;
  absl::Time absent_since = absl::InfiniteFuture();  // since when members that it needs are absent

  // Starting and later.
  JobRanks ranks;
  RankCards cards;  // of ranks that keep the dense tables
  JobPservers pservers;
  bool hosted = false;  // pservers shall hold its tables
  JobOpening opening;
  JobRecovery recovery;
  // Why the newest checkpoint of an adopted attempt cannot be read. The job must not silently go
  // back past it; a newer one makes this OK.
  absl::Status newest_unusable;
  std::optional<JobRun> run;         // while RUNNING, and afterwards
  std::optional<JobResult> before;   // RECOVERING: what the attempt that was lost had come to
  std::optional<StepReports> steps;  // from the first run on
  std::optional<JobCheckpoints> checkpoints;  // from the first run on, if it makes checkpoints
  CheckpointStatus checkpoints_before;        // under earlier schedulers (JobRecord.checkpoints)
  CheckpointOrders told;         // the orders that rank 0 and the pservers were told last
  bool progress_untold = false;  // workers have reported since watchers were last woken
  absl::Time finishing_since = absl::InfiniteFuture();

  absl::Time ended_at = absl::InfiniteFuture();
  JobResult result;     // when over
  std::string save_id;  // over when this scheduler began: SaveIdOf its last attempt
  std::optional<JobStatus> archived;

  bool over() const { return outcome != JOB_STATE_UNSPECIFIED; }
  // True when all phases are done and the job waits only for fresh reports.
  bool finishing() const { return run && run->phases().over(); }
  // True when no rank and no pserver is vacant.
  bool complete() const { return ranks.vacant.empty() && pservers.vacant.empty(); }
  // True while the pservers open the tables of an attempt that has not begun to run.
  bool opening_tables() const {
    return !over() && (state == JOB_STARTING || (state == JOB_RECOVERING && hosted));
  }
  // True while the job lacks members for its next attempt.
  bool awaits_members() const { return !over() && state == JOB_RECOVERING && !hosted; }
  // True when no member serves any of the job's ranks.
  bool released() const { return ranks.released(); }
  // True when the result is written, no member serves the job and no pserver holds its tables.
  bool settled() const { return over() && state == outcome && !hosted && released(); }
};

// Adds the warning unless the job has it already: a restarted scheduler finds the same problems
// again. The last of kMaxWarnings says that further ones are left out. True when the warnings have
// changed.
inline constexpr size_t kMaxWarnings = 100;
bool AddWarning(Job* job, std::string warning);
// True when the member is one of the job's pservers or a worker allocated to the job.
bool Serves(const Job& job, const Member& member);
// True when the worker's report is one of the present life of its rank.
bool IsOfLife(const Job& job, const RankSlot& slot, const WorkerProgress& progress);
// The member's report on this instance of the job; null when there is none.
const HostedJob* HostedOf(const Job& job, const Member& member);
// True when the pserver has opened the tables for the present route.
bool HasOpened(const Job& job, const Member& pserver);
// Names the files of the job's save; "" before the job has started. No two runs share an id, not
// even under different schedulers.
std::string SaveIdOf(const Job& job);

}  // namespace sluice

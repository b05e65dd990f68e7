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
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/follower_plan.h"
#include "scheduler/job_checkpoints.h"
#include "scheduler/job_opening.h"
#include "scheduler/job_recovery.h"
#include "scheduler/job_run.h"
#include "scheduler/membership.h"
#include "scheduler/rank_slot.h"
#include "scheduler/resume_point.h"
#include "scheduler/step_reports.h"

namespace sluice {

// A rank whose worker is lost and whose next worker has no assignment yet (RankReplacement).
struct Vacancy {
  absl::Time since;
  std::string why;                // names the lost worker
  uint64_t lost_incarnation = 0;  // of the lost life
  bool settled = false;           // it is known where the rank continues
};

// Ranks without which the job will continue (RankRemoval). They are vacant until then.
struct Removal {
  absl::Time since;          // of the last loss
  std::set<uint32_t> ranks;  // that the next attempt leaves out; it waits for the other vacant ones
  uint64_t checkpoint = 0;   // from which the next attempt begins; 0: not asked for yet
  std::vector<LostCommit> commits;  // that count on every pserver
};

// A pserver that is lost, until another process serves its shards and every rank has reached that
// (ShardTakeover).
struct PserverVacancy {
  absl::Time since;           // of its loss, or of the newest progress of its successor
  std::string why;            // names the lost one
  bool opened = false;        // the successor has opened the tables
  uint64_t loaded_bytes = 0;  // HostedJob.loaded_bytes of the successor
  uint64_t lost_before = 0;   // Recovery.updates_lost before this loss
  bool copies = false;        // the successor is to read copies, which are not void yet
  bool had_copies = false;    // it continues from copies, as far as is known
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
  std::vector<RankSlot> ranks;
  absl::flat_hash_map<uint64_t, uint32_t> rank_of;  // by member id
  std::map<uint32_t, Vacancy> vacant;               // by rank
  std::optional<Removal> removal;
  std::vector<EndedLife> ended;                        // async, Geo: of this attempt
  std::vector<uint64_t> pservers;                      // member ids; 0: lost, see vacant_pservers
  std::map<uint32_t, PserverVacancy> vacant_pservers;  // by index in `pservers`
  std::vector<uint32_t> pserver_ranks;                 // of the present or the next attempt
  std::vector<uint32_t> placed_on;                     // by index in spec.route: ranks
  bool keeps_pservers = false;                         // also draining ones: others lack the room
  std::optional<FollowerPlan> followers;               // of a job with replicas
  absl::Time copies_missing_since = absl::InfiniteFuture();
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
  // The orders that rank 0 and the pservers were told last.
  JobCheckpoints::Asked told_asked;
  JobCheckpoints::Ordered told_ordered;
  uint64_t told_over = 0;
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
  bool complete() const { return vacant.empty() && vacant_pservers.empty(); }
  // True while the pservers open the tables of an attempt that has not begun to run.
  bool opening_tables() const {
    return !over() && (state == JOB_STARTING || (state == JOB_RECOVERING && hosted));
  }
  // True while the job lacks members for its next attempt.
  bool awaits_members() const { return !over() && state == JOB_RECOVERING && !hosted; }
  // True when no member serves any of the job's ranks.
  bool released() const;
  // True when the result is written, no member serves the job and no pserver holds its tables.
  bool settled() const { return over() && state == outcome && !hosted && released(); }
  // The slot of the rank that the member serves or has served; null when there is none.
  RankSlot* SlotOf(uint64_t member_id);
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

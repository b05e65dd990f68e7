// The scheduler's record of one job, from its submission until it is forgotten.
//
//   QUEUED -> STARTING (pservers open its tables) -> RUNNING (phases) -> over
//
// JobAdmission admits a job, and JobLifecycle leads it through these states. First `outcome` is
// set: the job is over. `state` becomes `outcome` only when result.json is written, so that whoever
// sees a job done finds its result. A settled job does not change any more.
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

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job_checkpoints.h"
#include "scheduler/job_opening.h"
#include "scheduler/job_run.h"
#include "scheduler/membership.h"
#include "scheduler/rank_slot.h"
#include "scheduler/resume_point.h"
#include "scheduler/step_reports.h"

namespace sluice {

struct Job {
  std::string job_id;
  JobConfig config;  // effective; constant
  JobSpec spec;      // the route is set when it starts; its config names checkpoint.dir
  std::unique_ptr<const ResumePoint> resume;  // null: begins at the beginning
  JobState state = JOB_QUEUED;
  JobState outcome = JOB_STATE_UNSPECIFIED;
  std::string message;
  std::vector<std::string> warnings;  // about its submission and its output
  uint64_t status_version = 1;        // raised by CoreEffects::StatusChanged

  // Queued.
  uint32_t queue_position = 0;
  absl::Time absent_since = absl::InfiniteFuture();  // since when members that it needs are absent

  // Starting and later.
  std::vector<RankSlot> ranks;
  absl::flat_hash_map<uint64_t, uint32_t> rank_of;  // by member id
  std::vector<uint64_t> pservers;                   // member ids
  bool hosted = false;                              // pservers shall hold its tables
  JobOpening opening;
  std::optional<JobRun> run;         // from RUNNING on
  std::optional<StepReports> steps;  // with the run
  std::optional<JobCheckpoints> checkpoints;  // with the run, if the job makes checkpoints
  // What rank 0 and the pservers were told of them.
  JobCheckpoints::Asked told_asked;
  uint64_t told_over = 0;
  bool progress_untold = false;      // workers have reported since watchers were last woken
  absl::Time finishing_since = absl::InfiniteFuture();

  absl::Time ended_at = absl::InfiniteFuture();
  JobResult result;  // when over
  std::optional<JobStatus> archived;

  bool over() const { return outcome != JOB_STATE_UNSPECIFIED; }
  // All phases are done; the job waits only for fresh reports.
  bool finishing() const { return run && run->phases().over(); }
  // No member serves any of its ranks any more.
  bool released() const;
  // Its result is written, no member serves it and no pserver holds its tables.
  bool settled() const { return over() && state == outcome && !hosted && released(); }
  // The slot of the rank that the member serves or has served; null when there is none.
  RankSlot* SlotOf(uint64_t member_id);
};

// True when the member is one of the job's pservers or a worker allocated to the job.
bool Serves(const Job& job, const Member& member);
// The member's report on this instance of the job; null when there is none.
const HostedJob* HostedOf(const Job& job, const Member& member);
// True when the pserver has opened the tables for the present route.
bool HasOpened(const Job& job, const Member& pserver);
// Names the files of the job's save; "" before the job has started. No two runs share an id, not
// even under different schedulers.
std::string SaveIdOf(const Job& job);

}  // namespace sluice

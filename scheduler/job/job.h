// The scheduler's record of one job, from its submission until it is forgotten.
//
// A job is the sum of its parts. Each keeps its own state, and says what may be done to it:
//
//   course      where it stands: state, outcome, message, result
//   attempt     what the members of the present attempt are told, and its run
//   ranks       its workers, by rank
//   pservers    its pservers, by index
//   recovery    what losses have cost, and whether a lost attempt has what the next one needs
//   ledger      its checkpoints
//   deletion    the rows that an operator deletes
//   gathers     what the ranks of its program give each other
//
// The job itself has what was submitted, and what callers that follow it are told of changes.
// JobAdmission makes a job, and JobLifecycle leads it through its states (JobCourse).
//
// RECOVERING has two halves: first the job waits for replacements and no pserver holds its tables,
// then the pservers open the tables of its next attempt (JobAttempt::hosted).
//
// Memory: a settled job keeps its newest steps and its run for callers that still follow it.
// Archive later keeps only the status.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/job/checkpoint_ledger.h"
#include "scheduler/job/job_attempt.h"
#include "scheduler/job/job_course.h"
#include "scheduler/job/job_pservers.h"
#include "scheduler/job/job_ranks.h"
#include "scheduler/job/job_recovery.h"
#include "scheduler/job/rank_gathers.h"
#include "scheduler/job/row_deletion.h"
#include "scheduler/members/membership.h"

namespace sluice {

class Job {
 public:
  // The facts that are fixed when the job is submitted.
  struct Submission {
    std::string job_id;
    JobConfig config;          // effective
    uint64_t order = 0;        // of submission
    std::string request_id;    // of the call that submitted it; may be empty
    bool allow_older = false;  // of that call
    bool resume = false;       // of that call; not kept over a restart of the scheduler
    std::string resumed_from;  // folder of the checkpoint that it was submitted with; empty: none
  };
  // `first_version`: of its status.
  explicit Job(Submission submission, uint64_t first_version = 1);

  const std::string& id() const { return submission_.job_id; }
  // Empty once the job is archived.
  const JobConfig& config() const { return submission_.config; }
  const Submission& submission() const { return submission_; }
  // REQUIRES: nobody knows the job yet.
  void SetRequest(std::string request_id, bool allow_older, bool resume = false);

  // Adds the warning unless the job has it already: a restarted scheduler finds the same problems
  // again. The last of kMaxWarnings says that further ones are left out. True when the warnings
  // have changed.
  static constexpr size_t kMaxWarnings = 100;
  bool AddWarning(std::string warning);
  // About its submission and its output.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // CoreEffects raises the version when the status changes.
  uint64_t status_version() const { return status_version_; }
  // Workers have reported since the version was raised last.
  bool progress_untold() const { return progress_untold_; }
  void RaiseVersion();
  void NoteProgress() { progress_untold_ = true; }

  // Reduces the job to its id, its states and this status.
  // REQUIRES: settled().
  void Archive(JobStatus status);
  // Null until Archive.
  const JobStatus* archived() const { return archived_ ? &*archived_ : nullptr; }

  JobConfig* MutableConfigForTest() { return &submission_.config; }

  JobState state() const { return course.state(); }
  bool over() const { return course.over(); }
  const JobSpec& spec() const { return attempt.spec(); }
  JobRun* run() { return attempt.run(); }
  const JobRun* run() const { return attempt.run(); }
  JobCheckpoints* checkpoints() { return ledger.checkpoints(); }
  const JobCheckpoints* checkpoints() const { return ledger.checkpoints(); }
  // True when all phases are done and the job waits only for fresh reports.
  bool finishing() const { return run() != nullptr && run()->phases().over(); }
  // True when no rank and no pserver is vacant.
  bool complete() const { return ranks.vacant().empty() && pservers.vacant().empty(); }
  // True while the pservers open the tables of an attempt that has not begun to run.
  bool opening_tables() const {
    return !over() && (state() == JOB_STARTING || (state() == JOB_RECOVERING && attempt.hosted()));
  }
  // True while the job lacks members for its next attempt.
  bool awaits_members() const { return !over() && state() == JOB_RECOVERING && !attempt.hosted(); }
  // True when no member serves any of the job's ranks.
  bool released() const { return ranks.released(); }
  // True when the result is written, no member serves the job and no pserver holds its tables.
  bool settled() const { return course.written() && !attempt.hosted() && released(); }

 private:
  // Declared before the attempt, whose run refers to the config.
  Submission submission_;

 public:
  JobCourse course;
  JobAttempt attempt;
  JobRanks ranks;
  JobPservers pservers;
  JobRecovery recovery;
  CheckpointLedger ledger;
  RowDeletion deletion;
  RankGathers gathers;

 private:
  std::vector<std::string> warnings_;
  uint64_t status_version_;
  bool progress_untold_ = false;
  std::optional<JobStatus> archived_;
};

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

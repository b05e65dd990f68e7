// Takes over the jobs of an earlier scheduler, and continues the attempts that it was running.
//
// JobRestorer hands the core the previous scheduler's jobs, each with the point where it resumes. A
// job whose attempt was running continues with its members, if the records of the attempt are
// complete. Otherwise its next attempt begins at a checkpoint. The job's log says which of these it
// is, and why.
//
// JobAdoption leads an attempt that continues until all its members are back:
//
//   1. Begin     the run is where its records say (RUNNING); its workers' calls are answered.
//   2. TakeBack  members that still serve the attempt register, and keep what they hold.
//   3. TakeBack  all are there: checkpoints continue.
//
// If a member does not come within a lease, or comes back without what it held, the attempt is
// refuted: the job needs another one. In the phase that the records describe, a worker's call may
// also show that they were not complete (doubted).
//
// Memory: one entry for each adopted attempt, until End.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/recovery/attempt_members.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_directory.h"
#include "scheduler/registry/job_records.h"

namespace sluice {

class JobAdoption {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobDirectory* jobs = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
    CheckpointLifecycle* checkpoints = nullptr;
    AttemptMembers* attempts = nullptr;
  };
  // Members have a lease to come back, but at least some seconds.
  JobAdoption(absl::Duration lease, Parts parts);

  // Adopts the attempt of a job that is new here. `began_at`: where it began; null: at the
  // beginning. `newest`: where the next one would begin. Not OK: the records do not say enough;
  // nothing has changed, and began_at and newest are not used.
  absl::Status Begin(Job* job, const Recovery& counts, const StoredRun& run,
                     std::unique_ptr<const ResumePoint> began_at,
                     absl::StatusOr<std::unique_ptr<const ResumePoint>>* newest, absl::Time now);
  // An attempt whose member came back, but no longer serves it.
  struct Refuted {
    Job* job = nullptr;
    absl::Status why;
  };
  // Takes the registration of a member that holds something. True when the member serves a job with
  // it. Adds the attempts that need another one to `refuted`.
  bool TakeBack(Member* member, absl::Time now, std::vector<Refuted>* refuted);

  // The job's present attempt was begun by an earlier scheduler.
  bool adopted(const Job& job) const { return attempts_.count(&job) > 0; }
  // True while members of the adopted attempt are missing.
  bool awaits(const Job& job) const;
  // How many of the missing members are workers.
  uint32_t MissingWorkers(const Job& job) const;
  // True when the missing members did not return in time.
  bool late(const Job& job, absl::Time now) const;
  // True while the job is in the recorded phase, whose records may be incomplete.
  bool doubted(const Job& job) const;
  // Call when the job has moved on to another phase.
  void PhaseEnded(const Job& job);

  // Where the next attempt of a job begins, or why there is no such place.
  using Newest = absl::StatusOr<std::unique_ptr<const ResumePoint>>;
  // Call when the attempt is over. If members were still awaited, returns where the next attempt
  // begins.
  std::optional<Newest> End(Job* job);

 private:
  struct Awaited {
    absl::Time since;
    Newest newest;
    uint64_t checkpoint = 0;  // the newest that a member was told of
  };
  struct Adopted {
    bool doubted = true;
    std::optional<Awaited> awaited;
  };
  // Whether a member that registers takes a place of the adopted attempt that it had before.
  // kRefused: the place was this member's and is free, but the member no longer serves it.
  enum class Claim { kNone, kTaken, kRefused };
  Claim TakeBackRank(Job* job, Member* worker) const;
  static Claim TakeBackTables(Job* job, const Member& pserver);
  void TellWhoIsMissing(Job* job);
  void Finish(Job* job, Adopted* adopted, absl::Time now);

  const absl::Duration wait_;
  const Parts parts_;
  std::map<const Job*, Adopted> attempts_;
};

class JobRestorer {
 public:
  using Point = absl::StatusOr<std::unique_ptr<const ResumePoint>>;
  // The calls that the restorer makes.
  struct Calls {
    // Adds a line to the log of a job.
    std::function<void(const std::string& job_id, const std::string& line)> log;
    // Read files: FindRestartPoint and ReadResumePoint (starting_point.h).
    std::function<Point(const JobRecord& record, bool verify, std::vector<std::string>* warnings)>
        find_point;
    std::function<Point(const std::string& dir, const JobConfig& config)> read_point;
    // SchedulerCore::RestoreJob and ForgetRun.
    std::function<void(const JobRecord& record, Point point, std::optional<RunHandover> run)>
        restore;
    std::function<void(const StoredRun& run)> forget;
  };
  explicit JobRestorer(Calls calls) : calls_(std::move(calls)) {}

  // In the order of submission. Call before members register.
  void RestoreAll(const StoredJobs& stored);

 private:
  using Runs = std::map<std::string, StoredRun>;  // by job_id

  void RestoreJob(JobRecord record);
  // Takes the job's run out of runs_, and returns it if it can be adopted.
  std::optional<RunHandover> FindHandover(const JobRecord& record);
  // OK when the run can be adopted; then its beginning is in handover->began_at.
  absl::Status CheckAdoptable(const JobRecord& record, RunHandover* handover) const;
  // The checkpoint at which the next attempt begins, if there is one. `adopted`: the run of the job
  // continues. Adds what is wrong with checkpoints to the warnings of the record.
  Point FindPoint(bool adopted, JobRecord* record) const;

  const Calls calls_;
  Runs runs_;  // those whose job has not been restored yet
};

}  // namespace sluice

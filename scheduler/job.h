// What the scheduler remembers of one job, from its submission until it is forgotten.
//
//   QUEUED -> STARTING (pservers open its tables) -> RUNNING (phases) -> over
//
// "Over" is decided first (`outcome`); state follows when result.json is written, so that whoever
// sees a job done finds its result. A settled job changes no more.
//
// Memory: a settled job keeps its newest steps and its run for callers that still follow it, until
// Archive leaves the status alone. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job_run.h"
#include "scheduler/membership.h"
#include "scheduler/step_curves.h"

namespace sluice {

// A rank of a job and the member that serves it.
struct RankSlot {
  enum State {
    kServing,
    kWithdrawn,  // the member is told to stop serving, and has not said that it has
    kReleased,
  };
  uint64_t member_id = 0;
  uint32_t worker = 0;  // rank in the cluster
  uint64_t incarnation = 0;
  State state = kServing;
  uint64_t told_version = 0;       // of the member's desired state: it is asked to serve
  uint64_t withdrawn_version = 0;  // of the member's desired state
  bool reported = false;           // a report of the member has named the job
  uint64_t newest_loss_step = 0;   // that it reported
  absl::Time absent_since = absl::InfiniteFuture();  // its reports do not name the job
};

struct Job {
  std::string job_id;
  JobConfig config;  // effective; constant
  JobSpec spec;      // the route is set when it starts
  JobState state = JOB_QUEUED;
  JobState outcome = JOB_STATE_UNSPECIFIED;
  std::string message;
  std::vector<std::string> warnings;  // from its submission
  uint64_t status_version = 1;        // SchedulerCore::NoteStatus raises it and wakes who waits

  // Queued.
  uint32_t queue_position = 0;
  absl::Time absent_since = absl::InfiniteFuture();  // members that it needs are not there at all

  // Starting and later.
  std::vector<RankSlot> ranks;
  absl::flat_hash_map<uint64_t, uint32_t> rank_of;  // by member id
  std::vector<uint64_t> pservers;                   // member ids
  bool hosted = false;                              // pservers hold its tables
  bool output_begun = false;                        // its output folder is ready
  absl::Time starting_since;
  // How much of the initial model a pserver has read, and since when it is not more; by member id.
  struct Load {
    uint64_t bytes = 0;
    absl::Time since;
  };
  std::map<uint64_t, Load> loads;
  std::optional<JobRun> run;
  std::optional<StepCurves> curves;
  std::deque<StepLoss> recent_steps;  // the newest kRecentSteps of those that were reported
  uint64_t steps_reported = 0;
  bool progress_untold = false;  // reports since the status was noted last
  // Members are asked for a fresh report when an epoch ends. Those that have not given it yet, with
  // the version of the desired state that their report must have seen.
  absl::flat_hash_map<uint64_t, uint64_t> asked;
  absl::Time finishing_since = absl::InfiniteFuture();

  absl::Time ended_at = absl::InfiniteFuture();
  JobResult result;  // when over
  std::optional<JobStatus> archived;

  bool over() const { return outcome != JOB_STATE_UNSPECIFIED; }
  // All phases are done; only fresh reports are awaited.
  bool finishing() const { return run && run->phases().over(); }
  // Its result is written, no member serves it and no pserver holds its tables.
  bool settled() const;
};

constexpr size_t kRecentSteps = 4096;

// What the member reports of this instance of the job; null: nothing.
const HostedJob* HostedOf(const Job& job, const Member& member);
// The pserver has opened the tables for the present route.
bool HasOpened(const Job& job, const Member& pserver);
// The steps reported after the first `seen`, as far as they are remembered.
void AddSteps(const Job& job, uint64_t seen, WatchJobReply* reply);
// The job as operators see it.
JobStatus MakeJobStatus(const Job& job, Membership* members);
// Keeps of the job what operators need: id, state and a status without route, features, model and
// tables. REQUIRES: settled.
void Archive(Job* job, Membership* members);
// Result with status and message, as result.json has it. REQUIRES: over.
JobResult MakeJobResult(const Job& job, Membership* members);
MemberStatus MakeMemberStatus(const Member& member, absl::Time now);
// Sums over its pservers' reports.
Staleness SumStaleness(const Job& job, Membership* members);
// Sum of its workers' speeds while it trains.
double ExamplesPerSecond(const Job& job, Membership* members);
// Sync: the largest step of a worker; else the sum of all workers' steps.
uint64_t GlobalStep(const Job& job, Membership* members);
// Names the files of its save; "" before it has started. Of two runs, also of two schedulers, no
// two have the same.
std::string SaveIdOf(const Job& job);
// "rank 1 (worker 3 (pid 7 on host h))"
std::string DescribeRank(const Job& job, uint32_t rank, Membership* members);
// The first of `ranks`, and how many more, "to end phase train". REQUIRES: the job runs.
std::string DescribeMissing(const Job& job, const std::vector<uint32_t>& ranks,
                            Membership* members);

}  // namespace sluice

// Carries out what the loss of a member means for its job, as member_loss.h decides.
//
//   Lose       counts the loss. The rank of a lost worker waits for another worker
//              (RankReplacement), or the job prepares to continue without it (RankRemoval). The
//              shards of a lost pserver wait for another process (ShardTakeover). Otherwise the
//              attempt ends (RollBack).
//   Advance    brings replacement, removal and takeover forward, as members report and time passes.
//   TakeGroup  takes what ranks that keep dense tables say of their group. If they cannot continue
//              in place, the attempt ends as well.
//   RollBack   ends the attempt. The next one begins at the newest checkpoint (NextAttempt),
//              without the ranks that were to be removed.
//
// Status codes: an error means that the job can neither continue nor go back by itself. The caller
// returns it to former members (AttemptPlans::GoBack) or ends it.
//
// A group of ranks may fail although nobody is lost, for example when a connection breaks. The job
// then goes back, but only kMaxGroupFaults times in a row: a fault that stays fails the job.
//
// Memory: an entry for each job whose group has failed, until Forget.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/recovery/attempt_members.h"
#include "scheduler/recovery/attempt_plans.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/recovery/job_adoption.h"
#include "scheduler/recovery/member_loss.h"
#include "scheduler/recovery/next_attempt.h"
#include "scheduler/recovery/rank_removal.h"
#include "scheduler/recovery/rank_replacement.h"
#include "scheduler/recovery/shard_takeover.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_queue.h"

namespace sluice {

// How often in a row a job goes back because its group of ranks has failed, without a loss or a new
// checkpoint in between. The next such failure ends the job.
inline constexpr uint32_t kMaxGroupFaults = 2;

class JobLosses {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
    CheckpointLifecycle* checkpoints = nullptr;
    AttemptMembers* attempts = nullptr;
    const JobAdoption* adoption = nullptr;
    NextAttempt* next_attempt = nullptr;
    AttemptPlans* plans = nullptr;
  };
  // `wait`: bound of each step of a replacement, removal or takeover, unless the job has its own
  // (recovery.wait_s).
  JobLosses(absl::Duration wait, Parts parts);

  // The member, which serves the job, is lost. Call Advance next: a phase that waited for a
  // checkpoint with this member may end before.
  absl::Status Lose(Job* job, const Member& member, absl::Time now);
  // The workers that an adopted attempt still lacks are lost. If the job shrinks, its next attempt
  // does without those that no free worker can replace. Call RollBack next.
  void LoseMissing(Job* job);
  // Call when pservers begin to drain. No other process takes a vacant place of one of them, so an
  // attempt with such a place ends.
  absl::Status LoseDraining(Job* job, absl::Time now);
  // Does what can be done now for the vacant ranks and pservers of the job.
  absl::Status Advance(Job* job, absl::Time now);
  // Takes the report of pserver `index` of the job.
  void TakeHosted(Job* job, uint32_t index, const HostedJob& hosted);
  // Takes what a rank says of the group that keeps the dense tables.
  absl::Status TakeGroup(const Member& worker, const RankGroupReport& report, Job* job,
                         absl::Time now);
  // The attempt cannot continue. Does nothing for a job that is already waiting for its next one,
  // except to begin that if it can.
  absl::Status RollBack(Job* job, absl::Time now);
  // The job is over: nothing is vacant any more, and workers that were taken for vacant ranks are
  // free.
  void Forget(Job* job);

 private:
  struct GroupFaults {
    uint32_t in_row = 0;
    uint64_t losses = 0;  // of members, when the newest fault came
  };
  void Count(Job* job, const Member& lost, const LossDecision& decision, absl::Time now);
  absl::Status CarryOut(const LossDecision& decision, const Member& lost, Job* job, absl::Time now);
  absl::Status Shrink(Job* job, const Member& lost, const std::string& why, absl::Time now);
  // The job goes back to its newest checkpoint, and continues with this many ranks fewer.
  absl::Status ShrinkAndRollBack(Job* job, size_t ranks, const std::string& why, absl::Time now);
  void ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now);
  // The job continues without the lost rank, where it is if that is possible. `leave_out`: see
  // RankRemoval::Lose.
  void RemoveRank(Job* job, uint32_t rank, bool leave_out, const std::string& why, absl::Time now);
  absl::Status TakeOverShards(Job* job, const Member& lost, const std::string& why, absl::Time now);
  absl::Status AdvanceRanks(Job* job, absl::Time now);
  absl::Status AdvanceRemoval(Job* job, absl::Time now);
  // No worker took over a rank in time; `late` is the error. A job that shrinks continues without
  // the ranks that have no worker.
  absl::Status ReplacementIsLate(Job* job, const absl::Status& late, absl::Time now);
  // Counts a failure of the job's group of ranks. Not OK: the group has failed too often.
  absl::Status CountGroupFault(const Job& job, const std::string& why);
  // Tells the workers of a job that keep the dense tables of a new generation, or of their cards.
  void TellRanks(const Job& job);
  // Workers that could take a rank of the job now.
  uint32_t FreeWorkers(Job* job) const;

  const Parts parts_;
  RankReplacement replacement_;
  RankRemoval removal_;
  ShardTakeover takeover_;
  std::map<const Job*, GroupFaults> faults_;
};

}  // namespace sluice

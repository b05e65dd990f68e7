// Decides what becomes of a job when a member that serves it is lost.
//
// The rank of a lost worker is given to another one (RankReplacement). In async and Geo the shards
// of a lost pserver are taken over by another process (ShardTakeover), and only they go back to the
// newest checkpoint. In sync the loss of a pserver rolls the whole job back, and so do losses that
// come together: a worker while shards are being taken over, or a pserver while it is not yet known
// where a lost rank continues. So does the loss of the last worker that holds the dense tables of a
// job whose workers keep them. A sync job may also shrink (on_worker_loss), unless the worker has
// left in order or can be replaced at once. A pserver that is draining is not awaited: its loss
// rolls the job back, to continue without it. No other place says what a loss means. A new outcome
// becomes a new kind here, which JobLosses carries out.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"

namespace sluice {

// Default of recovery.max_losses, the losses within JobRecovery::kLossWindow after which the next
// one ends the job.
inline constexpr uint32_t kDefaultMaxLosses = 100;

struct LossDecision {
  enum Kind {
    kGoesOn,       // the job does not need the member any more
    kReplaceRank,  // another worker gets the rank of this one
    kTakeOver,     // another process takes over the shards of this pserver
    kRollback,     // all ranks stop, and a new attempt begins at the newest checkpoint
    kShrink,       // a new attempt without the rank of this worker, which died or fell silent; it
                   // begins where the present one ends (RankRemoval), or else as a rollback
    kFails,        // the job has lost more members than recovery.max_losses of late
  };
  Kind kind = kGoesOn;
  std::string message;  // names the member and why it is gone
};

// The losses that the job survives within JobRecovery::kLossWindow (recovery.max_losses).
uint64_t MaxLosses(const JobConfig& config);

// True when the job continues without a worker that it loses, as long as it has others
// (sync_configs.on_worker_loss: SHRINK).
bool ShrinksOnLoss(const Job& job);

// True when the workers keep tables of the job while they train (TableConfig.COLLECTIVE). A worker
// that takes over a rank gets them from the others.
bool WorkersKeepTables(const Job& job);

// True when these workers also close the steps among themselves, because pservers have no shards of
// the job.
bool RanksCloseSteps(const Job& job);
// The same with the route that the job is about to have.
bool RanksCloseSteps(const Job& job, const Route& route);

// True when a worker of a rank other than that of `lost` holds these tables.
// REQUIRES: WorkersKeepTables(job).
bool OthersHoldTables(const Job& job, const Member& lost);

// True when the worker was taken for a vacant rank and has no assignment yet, so that the job loses
// nothing with it.
bool TakenForVacantRank(const Job& job, const Member& worker);

// True when a job that waits for members has only reserved the worker, which has no rank yet.
bool ReservedForAttempt(const Job& job, const Member& worker);

// REQUIRES: the job is served by `lost`, or has reserved it, and it is not alive. The loss is not
// counted yet.
// `spare`: a worker is free that can take a rank at once.
LossDecision DecideMemberLoss(const Job& job, const Member& lost, absl::Time now,
                              bool spare = false);

}  // namespace sluice

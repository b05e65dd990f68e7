// Gives the shards of a lost pserver to another process while the job continues (async and Geo).
//
//   1. Lose     the pserver is lost: its place is vacant, and requests to its shards wait.
//   2. Advance  another process has registered with its rank. It gets the place: the route names
//               its address, and the specification says where its shards continue
//               (JobSpec.takeover): from the copies of a follower that has them all (FollowerPlan),
//               or from the newest checkpoint. Until a manifest that is being written is complete
//               or has failed, the newest checkpoint is not known, so this waits for it.
//   3. Advance  the process has opened the tables. Workers reach it as soon as it has.
//   4. Advance  every rank has told the shards what was acknowledged to it. The lost updates are
//               counted, and the place is no longer vacant.
//
// Each step takes at most `wait`, where reading the checkpoint counts from its last progress. The
// job cannot continue without steps 1 to 3. Without step 4 it only does not know how many updates
// are lost, so it continues with a warning.
//
// Invariants: JobPservers::vacant has the pserver from 1 to 4. Meanwhile no checkpoint is made, so
// that the one from which shards continue stays.
//
// With replicas it also publishes the changes of FollowerPlan, and warns when copies are missing
// for long.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"

namespace sluice {

// True when the job can continue with its other pservers while the shards of a lost one wait: it is
// async or Geo, its phases are under way, and it is known where each vacant rank continues.
bool CanTakeOverShards(const Job& job);

// Gives the pservers of an attempt that begins their followers, if the job has replicas.
// FAILED_PRECONDITION: there is only one pserver. A job that has lost the others to draining
// continues without replicas instead, with a warning.
absl::Status AssignFollowers(Job* job);

class ShardTakeover {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  // `wait`: bound of each step, unless the job has its own (recovery.wait_s).
  ShardTakeover(absl::Duration wait, Parts parts) : wait_(wait), parts_(parts) {}

  // Pserver `index` of the job is lost. `why`: names it.
  // REQUIRES: CanTakeOverShards.
  void Lose(Job* job, uint32_t index, const std::string& why, absl::Time now);
  // Takes the pserver's report on the job.
  // `may_publish`: false while members of an earlier scheduler are missing, so that the route
  // stays.
  void TakeHosted(Job* job, uint32_t index, const HostedJob& hosted, bool may_publish);
  // Does what can be done now for the job's vacant pservers. DEADLINE_EXCEEDED: nobody has taken
  // over in time, so that the job cannot continue. A pserver whose ranks it waited for too long is
  // given up: it is no longer vacant, and a warning says so.
  absl::Status Advance(Job* job, absl::Time now);
  // Call when a member is lost while the job only waits for its end. A warning says that
  // recovery.updates_lost may then be too small.
  void GiveUp(Job* job);

 private:
  // With checkpoint.save: BEST: shards go back to a checkpoint in the midst of an evaluation.
  static void WarnOfBestModel(Job* job, uint32_t index);
  // Each returns true when its step is done.
  bool TakeProcess(Job* job, uint32_t index, absl::Time now);
  bool HasOpenedTables(Job* job, uint32_t index, absl::Time now);
  bool EveryRankIsHeard(Job* job, uint32_t index);
  // The pserver's place is no longer vacant.
  static void Settle(Job* job, uint32_t index);
  void RecordSettled(const Job& job);
  // Tells which pservers of the route are vacant.
  void UpdateRoute(Job* job);
  // Publishes the route, with the followers of the plan, to all members of the job.
  void Publish(Job* job);
  // Takes the report into the plan, and publishes what follows from it.
  void UpdateFollowers(Job* job, uint32_t index, const HostedJob& hosted);
  // Nothing slows training down while copies are made, so a follower may never get them all.
  void WarnOfMissingCopies(Job* job, absl::Time now);
  absl::Status TooLate(const Job& job, uint32_t index, absl::Duration wait) const;

  const absl::Duration wait_;
  const Parts parts_;
};

}  // namespace sluice

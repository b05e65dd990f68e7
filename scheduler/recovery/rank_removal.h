// Lets a sync job continue without ranks that it has lost (on_worker_loss: SHRINK). No work is
// undone: the next attempt begins after the last step that the lost ranks were part of.
//
//   1. Lose     the rank is vacant and its life is being fenced (RankReplacement::Lose). No other
//               checkpoint is asked for.
//   2. Advance  all pservers report the new generation, and with it what they hold of the rank. The
//               last step that all lost ranks have committed is the last one that closes: a commit
//               at one pserver says that every pserver holds the push. Pservers that lack such a
//               commit are told of it. The other ranks may have pushed the step after it, which
//               nobody applies.
//               If workers keep dense tables, another rank may lack the means of that step, and so
//               can never commit it. Then nobody has closed it, and the step before is the last
//               one. In a job whose ranks close the steps among themselves, the other ranks say
//               which steps have closed, with the sums of the lost rank. A rank that does not know
//               of the last one is told.
//   3. Advance  the checkpoint after that step is complete (JobCheckpoints::CutAfterLoss). The next
//               attempt begins there, with fewer ranks, and trains the step after it again.
//
// Another rank that is lost meanwhile leads back to 2, with both. It is left out as well, or, if it
// is to be waited for, the next attempt waits for a worker in its place. No step closes without a
// lost rank, so a lost rank has committed that last step or at most one more. Pservers therefore
// report the sums of a rank's last two commits.
//
// A job that cannot do this goes back to its newest checkpoint. So does one whose scheduler dies
// before 3 has ended: a run with a vacant rank has no record (JobRecords::MembersChanged).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"
#include "scheduler/recovery/rank_replacement.h"
#include "scheduler/registry/core_effects.h"

namespace sluice {

class RankRemoval {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
    CheckpointLifecycle* checkpoints = nullptr;
  };
  // `wait`: bound on step 2, unless the job has its own (recovery.wait_s).
  RankRemoval(absl::Duration wait, Parts parts) : wait_(wait), parts_(parts) {}

  // Whether a job that loses a rank now can continue where it is. FAILED_PRECONDITION: it cannot;
  // the message says why.
  static absl::Status CanBegin(const Job& job);

  // Begins the removal of a vacant rank, or begins anew with this one as well. `leave_out`: the
  // next attempt has no such rank; otherwise it waits for a worker. `why`: names the worker.
  // REQUIRES: CanBegin(*job) is OK, or job->ranks.removal() is set.
  void Lose(Job* job, uint32_t rank, bool leave_out, const std::string& why, absl::Time now);

  // Does what can be done now. True: the next attempt can begin, from the newest checkpoint, and
  // has lost nothing. Not OK: the job must go back, for this reason.
  // REQUIRES: job->ranks.removal() is set.
  absl::StatusOr<bool> Advance(Job* job, absl::Time now);

 private:
  // Where the present attempt ends.
  struct End {
    uint64_t step = 0;
    std::map<uint32_t, TrainTotals> totals;  // of the lost ranks, that step included
  };
  // `last`: of LastWithMeans.
  static absl::StatusOr<End> EndOf(const Job& job, const std::vector<HeldOfRank>& held,
                                   uint64_t last);
  // The last step that all ranks which are left can commit; nullopt: some rank has not said yet
  // where it stands.
  static std::optional<uint64_t> LastWithMeans(const Job& job);
  // The same if the ranks close the steps among themselves; nullopt: some rank has not said yet
  // where it stands.
  static absl::StatusOr<std::optional<End>> EndAmongRanks(const Job& job);
  absl::StatusOr<std::optional<End>> FindEnd(const Job& job) const;
  void TellRanks(Job* job, const End& end);
  // Step 2, once all pservers have reported. True: there is such a checkpoint already.
  absl::StatusOr<bool> Cut(Job* job, const End& end, absl::Time now);
  void OrderCommits(Job* job, const End& end);

  const absl::Duration wait_;
  const Parts parts_;
};

}  // namespace sluice

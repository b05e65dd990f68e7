// Gives the rank of a lost worker to another worker while the job continues.
//
//   1. Lose     the worker is lost: the rank is vacant. It gets a new incarnation, and the job a
//               new generation, in which pservers accept nothing of the earlier life.
//   2. Advance  a free worker is taken for the rank, as soon as there is one. Prefers the worker's
//               own successor, a process with the same rank in the cluster. The successor of
//               another lost worker takes that one's rank instead.
//   3. Advance  all pservers report the new generation, and with it what they hold of the earlier
//               life. From then on nothing of that life is applied anywhere. The run frees the data
//               tasks that the life has not trained, and knows where the rank continues.
//   4. Advance  2 and 3 are done: the worker gets its assignment, and the rank is no longer vacant.
//
// A rank that is lost before the job runs has no earlier life, so that 3 is left out.
//
// Invariants: JobRanks::vacant has a rank from its loss until a worker has got its assignment.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_queue.h"

namespace sluice {

// Returns by rank what the job's pservers hold together, once all of them have reported the job's
// generation. Ranks of which nobody holds anything have empty positions.
std::optional<std::vector<HeldOfRank>> HeldByPservers(const Job& job, const Membership& members);

class RankReplacement {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  // `wait`: bound of the replacement of a rank, unless the job has its own (recovery.wait_s).
  RankReplacement(absl::Duration wait, Parts parts) : wait_(wait), parts_(parts) {}

  // The worker of the rank is lost. `incarnation`: of the rank's next life, larger than all before.
  // `why`: names the worker. A worker that had no assignment yet only leaves the rank vacant again.
  // REQUIRES: the rank's slot is released.
  void Lose(Job* job, uint32_t rank, uint64_t incarnation, const std::string& why, absl::Time now);
  // Does what can be done now for the job's vacant ranks, and adds the ranks that have gone through
  // step 3 to `settled`. Not OK: the job cannot continue, because time is up (DEADLINE_EXCEEDED) or
  // a pserver's report is impossible.
  absl::Status Advance(Job* job, absl::Time now, std::vector<uint32_t>* settled);

 private:
  void TakeFreeWorker(Job* job, uint32_t rank);
  absl::Status Settle(Job* job, uint32_t rank, const HeldOfRank& held);
  void Assign(Job* job, uint32_t rank);
  absl::Status TooLate(const Job& job, uint32_t rank, absl::Duration wait) const;

  const absl::Duration wait_;
  const Parts parts_;
};

}  // namespace sluice

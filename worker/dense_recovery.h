// Brings this rank to where the ranks that keep the dense tables continue, after they have met
// again because one of them was lost.
//
// The ranks first tell each other where they stand, and decide the same (group_agreement.h). Then a
// rank without tables gets them from another one, and so do the mean gradients of the open step
// reach every rank if one has them. What one rank has goes to all ranks in broadcasts, in which all
// take part; a rank that has the same bytes already drops what arrives.
//
// Invariant: a rank that has got only some of the tables does not hold them.
//
// Memory: a piece of what arrives, where it is dropped.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/collective/collective.h"
#include "proto/scheduler.pb.h"
#include "worker/group_agreement.h"
#include "worker/open_step.h"
#include "worker/rank_meetings.h"

namespace sluice {

class DenseRecovery {
 public:
  // `holds`: the replica of `step`, which outlives this, has the tables.
  DenseRecovery(OpenStep* step, uint32_t rank, uint32_t ranks, bool holds)
      : step_(step), rank_(rank), ranks_(ranks), holds_(holds) {}

  // An earlier life of this rank has committed so many steps somewhere; 0: not known.
  void set_committed(uint64_t steps) { committed_ = steps; }
  // See RankMeetings.
  ClosedStep* newest() { return &newest_; }

  // Agrees with the other ranks where all continue, and brings this rank there. `closed`: global
  // steps that have closed, as far as the scheduler knows. ABORTED: the ranks cannot continue where
  // they are. Other errors are those of the collective; then the ranks may agree in a next group.
  absl::Status Agree(Collective& collective, uint64_t closed);
  // So many steps have closed, as the scheduler knows, and the ranks do not meet. True: the last
  // one was open here, and its update is made.
  bool CloseAsTold(uint64_t steps);
  // Adds to a report what this rank knows of the steps that have closed.
  void AddStanding(RankGroupReport* report) const;

 private:
  absl::StatusOr<Agreement> Compare(Collective& collective, uint64_t closed);
  absl::Status TakeTables(Collective& collective, const Agreement& agreement);
  absl::Status TakeMeans(Collective& collective, const Agreement& agreement);
  absl::Status TakeNewest(Collective& collective, uint32_t from);

  OpenStep* const step_;
  const uint32_t rank_, ranks_;
  bool holds_;
  uint64_t committed_ = 0;
  ClosedStep newest_;
};

}  // namespace sluice

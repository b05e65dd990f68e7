// Decides where the ranks of a job that keep the dense tables continue, after they have met again
// because one of them was lost.
//
// Each rank tells where it stands. All ranks get the same standings, and so decide the same:
//
//   C  the steps that the rank furthest ahead has closed. A rank cannot be ahead of the others by
//      more than one step: it closes a step when all ranks have committed it.
//   1. A rank with C - 1 steps has committed the step, since another one has closed it. So it has
//      the step's gradients, and makes the update. A rank that cannot gets the tables, as a rank
//      without tables does, from the lowest rank that has C steps.
//   2. If a rank has the mean gradients of the open step C, all get them. Lost ranks may have had
//      them too, and may have committed the step, so no other ones may be used.
//   3. If somebody who is not a rank with tables knows that step C has closed, all make its update.
//      Otherwise it stays open until all ranks have committed it, as any other step.
//
// Without gradients of step C, all ranks reduce them anew. That is impossible if a lost rank has
// committed step C. Then, and when nobody holds the tables, the job goes back to a checkpoint.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

// Steps are counted: `closed` steps are those with global numbers below it.
struct RankStanding {
  bool holds = false;      // it has the tables
  uint64_t closed = 0;     // with tables: after this many steps
  bool means = false;      // with tables: it has the mean gradients of step `closed`
  uint64_t known = 0;      // steps that have closed for sure, as the rank was told
  uint64_t committed = 0;  // steps that an earlier life of the rank is known to have committed
};

struct Agreement {
  uint64_t closed = 0;             // C
  uint32_t tables_from = 0;        // a rank that has C steps
  std::vector<bool> needs_tables;  // by rank
  std::optional<uint32_t>
      means_from;                 // a rank with the gradients of step C; nullopt: none has them
  std::vector<bool> needs_means;  // by rank, if there are any
  bool closes = false;            // step C has closed too: all ranks make its update
};

// `standings`: by rank. ABORTED: the ranks cannot continue where they are; the message says why.
absl::StatusOr<Agreement> AgreeOn(const std::vector<RankStanding>& standings);

}  // namespace sluice

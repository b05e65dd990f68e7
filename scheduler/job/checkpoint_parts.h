// Collects the parts of one checkpoint: a cut from each pserver, and a state from each rank.
//
// A Geo rank is parked while the pservers begin their cuts, and confirms afterwards that it was
// parked until then. Its part is complete with this confirmation.
//
// Invariants:
// - A report that is repeated, or overtaken by a newer one, changes nothing.
//
// Memory: one report per pserver and rank.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/mode.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/data_tasks.h"

namespace sluice {

class CheckpointParts {
 public:
  // `without_shards`: the pservers that make no part.
  CheckpointParts(Mode mode, uint32_t worker_num, uint32_t pserver_num,
                  const std::vector<uint32_t>& without_shards);

  // Takes a pserver's report. True when it is progress: another state, or more bytes are written.
  // REQUIRES: pserver < pserver_num, and the cut has not FAILED.
  bool TakeHosted(uint32_t pserver, const HostedCut& cut);
  // Takes a rank's report. True when it is progress: the rank's part or its confirmation is new.
  // REQUIRES: cut.rank() < worker_num. Geo: a rank that is not parked reports after all cuts have
  // begun; one that went on before makes the checkpoint void.
  bool TakeWorker(const WorkerCut& cut);
  // Sync: the state of a rank that cannot report any more.
  void TakeLost(uint32_t rank, WorkerState state) { workers_[rank] = std::move(state); }

  bool AllRanksAnswered() const;
  bool AllCutsBegun() const;
  bool Written(uint32_t pserver) const { return hosted_[pserver].state() == HostedCut::WRITTEN; }
  // Once all cuts have begun: true when nothing more is needed from the rank's worker.
  bool RankComplete(uint32_t rank) const;
  // True when all files are written and all ranks are complete.
  bool Complete() const;
  // Names the first 8 members whose parts are missing, and counts the others. Pservers are among
  // them only with `of_pservers`: that they were told to begin.
  std::string Missing(bool of_pservers) const;
  uint64_t written_bytes() const;
  // The newest report of each pserver; state unspecified: none.
  const std::vector<HostedCut>& hosted() const { return hosted_; }
  // Async and Geo: the steps of the epoch that all ranks together had made when they answered.
  uint64_t Steps() const;

  // Async and Geo: by rank. INTERNAL when the pservers contradict each other: in Geo they must hold
  // the same frames of each rank.
  // REQUIRES: AllRanksAnswered() and AllCutsBegun().
  absl::StatusOr<std::vector<RankPart>> RankParts() const;
  // Moves the files into the manifest. In sync also the states of the ranks, which are in an async
  // or Geo manifest already, as of the cuts.
  // REQUIRES: Complete(). Nothing may be called afterwards.
  void MoveTo(Manifest* manifest);

 private:
  absl::StatusOr<RankPart> PartOf(uint32_t rank) const;

  const Mode mode_;
  std::vector<HostedCut> hosted_;  // by pserver; state unspecified: no report yet
  std::vector<std::optional<WorkerState>> workers_;
  std::vector<uint64_t> tasks_;  // by rank: RankPart.tasks
  std::vector<bool> went_on_;    // Geo, by rank: it has confirmed its release
};

}  // namespace sluice

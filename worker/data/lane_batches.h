// Sync: draws the batches of a rank from the lanes that it serves.
//
// The order is defined in lane_plan.h, so all ranks together train the global batches that one
// worker would train. A lane reads its next window when a step needs it. Lanes do so at different
// steps, and reading runs ahead of training by the batches of the prefetcher.
//
// Memory: about one window and one piece for each lane of the rank, whatever the size of the data.
//
// Thread safety: guarded by the owner's lock, as every BatchSource.
#pragma once

#include <cstdint>
#include <vector>

#include "model/data/lane_plan.h"
#include "worker/data/batch_source.h"
#include "worker/data/lane.h"
#include "worker/data/piece_reader.h"

namespace sluice {

class LaneBatches : public BatchSource {
 public:
  // `table` has the pieces of all ranks (PER_RANK_FILES: of this rank's files). `steps` is the
  // number of global batches of the epoch, empty ones included. The batches of the first
  // `first_step` steps are left out: the rest is the same as in the whole epoch. `context` and
  // `table` outlive it.
  LaneBatches(const JobContext& context, const PieceTable& table, uint32_t epoch, uint64_t steps,
              uint64_t first_step = 0);
  absl::StatusOr<Fill> Next() override;
  // Complete once Next has returned an empty Fill.
  uint64_t dropped() const override { return dropped_; }

 private:
  // The number of a lane's lines in the steps up to and including `step`.
  uint64_t LinesAfter(const Lane& lane, uint64_t step) const;
  // Reads the window of each lane in which a resumed epoch begins.
  absl::Status EnterWindows();
  // Reads the lines that no step took and counts their examples as dropped.
  absl::Status DropRest();

  const JobContext& context_;
  const bool drop_last_;
  const uint64_t steps_;
  const LaneOptions options_;
  const LanePlan plan_;
  PieceReader reader_;
  std::vector<Lane> lanes_;
  uint64_t step_ = 0;
  bool enters_ = false;  // the windows of a resumed epoch are not read yet
  uint64_t dropped_ = 0;
};

}  // namespace sluice

// Sync: the batches of a rank, drawn from the lanes that it serves.
//
// The order is that of lane_plan.h, so that the ranks together train the global batches of one
// worker. A lane reads its next window when a step needs it; lanes do so at different steps, and
// reading runs ahead of training by the batches of the prefetcher.
//
// Memory: about one window and one piece a lane of the rank, whatever the size of the data.
//
// Thread safety: as BatchSource.
#pragma once

#include <cstdint>
#include <vector>

#include "model/data/lane_plan.h"
#include "worker/batch_source.h"
#include "worker/lane.h"
#include "worker/piece_reader.h"

namespace sluice {

class LaneBatches : public BatchSource {
 public:
  // `table`: of all ranks (PER_RANK_FILES: of this rank's files). `steps`: global batches of the
  // epoch, empty ones included. `context` and `table` outlive it.
  LaneBatches(const JobContext& context, const PieceTable& table, uint32_t epoch, uint64_t steps);
  absl::StatusOr<Fill> Next() override;
  // Counted when Next has returned an empty Fill.
  uint64_t dropped() const override { return dropped_; }

 private:
  // Lines that a lane has given when step `step` has ended.
  uint64_t LinesAfter(const Lane& lane, uint64_t step) const;
  // Reads what no step took and counts the examples in it.
  absl::Status DropRest();

  const JobContext& context_;
  const bool drop_last_;
  const uint64_t steps_;
  const LaneOptions options_;
  const LanePlan plan_;
  PieceReader reader_;
  std::vector<Lane> lanes_;
  uint64_t step_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace sluice

// Says how far a rank's training has come with one frame: the data behind it, and sums over all it
// has trained in the epoch. Travels with every push of async and Geo jobs.
//
// Thread safety: free functions on values.
#pragma once

#include <cstdint>

#include "proto/pserver.pb.h"

namespace sluice {

struct TrainPosition {
  uint64_t task_id = 0, task_end = 0;  // as in Push
  uint32_t epoch = 0;                  // of the task, from 0
  // Sums of this rank in the epoch, up to and including the frame; see TrainTotals.
  uint64_t examples = 0, steps = 0;
  double loss_sum = 0, weight_sum = 0;
};

void SetPosition(const TrainPosition& position, Push* push);
TrainPosition PositionOf(const Push& push);
void SetPosition(const TrainPosition& position, RankPosition* rank);
TrainPosition PositionOf(const RankPosition& rank);

// True when `a` is at an earlier frame than `b`.
bool IsBehind(const RankPosition& a, const RankPosition& b);

// Sets *least to the earlier of `at` and *least. At the same frame, keeps the larger sums: an early
// part of a frame has no loss yet, and every shard asked holds the frame.
void KeepLeast(const RankPosition& at, RankPosition* least);

}  // namespace sluice

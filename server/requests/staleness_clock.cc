#include "server/requests/staleness_clock.h"

#include <algorithm>

namespace sluice {

void StalenessClock::Activate(uint32_t rank) {
  Rank& self = ranks_[rank];
  if (self.active) return;
  self.active = true;
  std::optional<uint64_t> slowest;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r == rank || !ranks_[r].active) continue;
    slowest = std::min(slowest.value_or(ranks_[r].clock), ranks_[r].clock);
  }
  // A rank that was ahead also restarts level with the slowest.
  if (slowest.has_value()) self.clock = *slowest;
}

void StalenessClock::Applied(uint32_t rank, uint64_t pulled_others) {
  const uint64_t now = others(rank);
  // A pull from an earlier life of this pserver may name more frames than this one has applied.
  const uint64_t seen = now > pulled_others ? now - pulled_others : 0;
  sum_ += seen;
  max_ = std::max(max_, seen);
  ++frames_;
  ++ranks_[rank].frames;
  ++ranks_[rank].clock;
}

uint64_t StalenessClock::StepOf(uint32_t rank, uint64_t for_push, uint64_t applied) const {
  const uint64_t clock = ranks_[rank].clock;
  if (for_push == 0) return clock;
  if (for_push > applied) return clock + (for_push - 1 - applied);
  const uint64_t passed = applied - (for_push - 1);
  return clock > passed ? clock - passed : 0;
}

std::optional<uint32_t> StalenessClock::Blocking(uint32_t rank, uint64_t step) const {
  if (!max_staleness_.has_value()) return std::nullopt;
  std::optional<uint32_t> slowest;
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (r == rank || !ranks_[r].active) continue;
    if (ranks_[r].clock + *max_staleness_ >= step) continue;
    if (!slowest.has_value() || ranks_[r].clock < ranks_[*slowest].clock) slowest = r;
  }
  return slowest;
}

}  // namespace sluice

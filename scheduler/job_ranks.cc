#include "scheduler/job_ranks.h"

#include <algorithm>

namespace sluice {

bool JobRanks::released() const {
  return std::all_of(slots.begin(), slots.end(),
                     [](const RankSlot& slot) { return slot.released(); });
}

RankSlot* JobRanks::SlotOf(uint64_t member_id) {
  const auto rank = by_member.find(member_id);
  return rank == by_member.end() ? nullptr : &slots[rank->second];
}

}  // namespace sluice

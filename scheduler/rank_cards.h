// Collects what the ranks of a job that keep the dense tables say of their group: the cards by
// which they find each other, and who holds the tables.
//
// A group has the generation of the route. Every loss of a rank raises it, so each report belongs
// to one group, and to one life of its rank.
//
// Memory: a card of at most 64 KiB for each rank, until the rank has met the others; and the sums
// of all ranks once, from the report that is furthest ahead.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/rank_slot.h"

namespace sluice {

class RankCards {
 public:
  // Takes the report of a rank's present life. False: it says nothing new. A report that newer ones
  // have overtaken changes nothing, and neither does one of a generation after `generation`, that
  // of the route: no rank has been told of such a group.
  bool Take(const RankGroupReport& report, uint64_t generation);
  // The cards of all ranks, by rank, once the present life of each has one for this generation.
  // Empty before, and after some ranks have met.
  std::vector<std::string> Of(uint64_t generation, const std::vector<RankSlot>& slots) const;
  // The report of the present life of the rank that `slot` is, for this generation; null: there is
  // none.
  const RankGroupReport* ReportOf(uint32_t rank, const RankSlot& slot, uint64_t generation) const;
  // True when this life of the rank has said that it holds the tables.
  bool Holds(uint32_t rank, uint64_t incarnation) const;
  void Clear() { reports_.clear(); }

 private:
  void KeepSumsOnce(RankGroupReport* newest);

  std::map<uint32_t, RankGroupReport> reports_;  // by rank
};

}  // namespace sluice

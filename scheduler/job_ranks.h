// The workers of one job, by rank: who serves each rank, which ranks are vacant, and without which
// ones the job will continue.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/rank_slot.h"

namespace sluice {

// A rank whose worker is lost and whose next worker has no assignment yet (RankReplacement).
struct Vacancy {
  absl::Time since;
  std::string why;                // names the lost worker
  uint64_t lost_incarnation = 0;  // of the lost life
  bool settled = false;           // it is known where the rank continues
};

// Ranks without which the job will continue (RankRemoval). They are vacant until then.
struct Removal {
  absl::Time since;          // of the last loss
  std::set<uint32_t> ranks;  // that the next attempt leaves out; it waits for the other vacant ones
  uint64_t checkpoint = 0;   // from which the next attempt begins; 0: not asked for yet
  std::vector<LostCommit> commits;  // that count on every pserver
  // The last step that closes, if the ranks close the steps among themselves; 0: not known yet.
  uint64_t step = 0;
};

struct JobRanks {
  std::vector<RankSlot> slots;                        // by rank; empty: the job has not started
  absl::flat_hash_map<uint64_t, uint32_t> by_member;  // ranks, by member id
  std::map<uint32_t, Vacancy> vacant;                 // by rank
  std::optional<Removal> removal;
  std::vector<EndedLife> ended;  // async, Geo: lives that ended in the present attempt

  // True when no member serves any of the ranks.
  bool released() const;
  // The slot of the rank that the member serves or has served; null when there is none.
  RankSlot* SlotOf(uint64_t member_id);
};

}  // namespace sluice

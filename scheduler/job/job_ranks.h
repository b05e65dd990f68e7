// The workers of one job, by rank: who serves each rank, which ranks are vacant, and which ones the
// job will leave out. Also the reports of ranks that keep the dense tables.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// One rank of a job: the member assigned to it, and whether that member serves it.
//
//   SERVING -> WITHDRAWN (told to stop, has not confirmed) -> RELEASED
//
// Members learn of changes as versions of their desired state. A report counts only when it has
// seen the version in question: reports can overtake each other and the answers to earlier ones.
class RankSlot {
 public:
  // `worker`: the member's rank in the cluster.
  // `rejoins`: this life replaces an earlier one of a running job.
  RankSlot(uint64_t member_id, uint32_t worker, uint64_t incarnation, bool rejoins = false)
      : member_id_(member_id), worker_(worker), incarnation_(incarnation), rejoins_(rejoins) {}

  uint64_t member_id() const { return member_id_; }
  uint32_t worker() const { return worker_; }
  uint64_t incarnation() const { return incarnation_; }
  bool rejoins() const { return rejoins_; }
  bool serving() const { return state_ == State::kServing; }
  bool released() const { return state_ == State::kReleased; }

  // This version of the member's desired state asks it to serve the rank.
  void Assign(uint64_t version) { told_version_ = version; }
  // This version asks it to stop.
  // REQUIRES: serving().
  void Withdraw(uint64_t version);
  void Release() { state_ = State::kReleased; }

  // Notes a report that names the job.
  void SeenRunning();
  // Notes a report that does not name the job. Returns since when reports have not named it;
  // InfiniteFuture when this report may be older than the assignment.
  absl::Time SeenIdle(uint64_t seen_version, absl::Time now);
  // True when a report that has seen `seen_version` and does not name the job confirms the stop.
  bool ConfirmsStop(uint64_t seen_version) const;
  // True once a report has named the job.
  bool has_run() const { return has_run_; }

 private:
  enum class State : uint8_t { kServing, kWithdrawn, kReleased };

  uint64_t member_id_;
  uint32_t worker_;
  uint64_t incarnation_;
  bool rejoins_;
  State state_ = State::kServing;
  uint64_t told_version_ = 0;
  uint64_t withdrawn_version_ = 0;
  bool has_run_ = false;
  absl::Time idle_since_ = absl::InfiniteFuture();
};

// Collects what the ranks of a job that keep the dense tables say of their group: the cards by
// which they find each other, and who holds the tables.
//
// A group has the generation of the route. Every loss of a rank raises it, so each report belongs
// to one group, and to one life of its rank.
//
// Memory: a card of at most 64 KiB for each rank, until the rank has met the others; and the sums
// of all ranks once, from the report that is furthest ahead.
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

// A rank whose worker is lost and whose next worker has no assignment yet (RankReplacement).
struct Vacancy {
  absl::Time since;
  std::string why;                // names the lost worker
  uint64_t lost_incarnation = 0;  // of the lost life
  bool settled = false;           // it is known where the rank continues
};

// Ranks without which the job will continue. They are vacant until then. RankRemoval writes it.
struct Removal {
  absl::Time since;          // of the last loss
  std::set<uint32_t> ranks;  // that the next attempt leaves out; it waits for the other vacant ones
  uint64_t checkpoint = 0;   // from which the next attempt begins; 0: not asked for yet
  std::vector<LostCommit> commits;  // that count on every pserver
  // The last step that closes, if the ranks close the steps among themselves; 0: not known yet.
  uint64_t step = 0;
};

class JobRanks {
 public:
  // By rank; empty: the job has not started.
  absl::Span<const RankSlot> slots() const { return slots_; }
  absl::Span<RankSlot> slots() { return absl::MakeSpan(slots_); }
  const std::map<uint32_t, Vacancy>& vacant() const { return vacant_; }  // by rank
  bool is_vacant(uint32_t rank) const { return vacant_.count(rank) > 0; }
  // Null: the job leaves no rank out.
  Removal* removal() { return removal_ ? &*removal_ : nullptr; }
  const Removal* removal() const { return removal_ ? &*removal_ : nullptr; }
  // How many ranks the job is about to leave out.
  uint32_t left_out() const { return removal_ ? static_cast<uint32_t>(removal_->ranks.size()) : 0; }
  // Async, Geo: lives that ended in the present attempt.
  const std::vector<EndedLife>& ended() const { return ended_; }
  // The cards of ranks that keep the dense tables.
  RankCards& cards() { return cards_; }
  const RankCards& cards() const { return cards_; }
  // The cards of all ranks for this generation (RankCards::Of).
  std::vector<std::string> CardsOf(uint64_t generation) const {
    return cards_.Of(generation, slots_);
  }
  // True when no member serves any of the ranks.
  bool released() const;
  // The rank that the member serves or has served. A caller whose member must have one asks for its
  // value(), which ends the process if there is none.
  std::optional<uint32_t> RankOf(uint64_t member_id) const;
  // The slot of that rank; null when there is none.
  RankSlot* SlotOf(uint64_t member_id);
  const RankSlot* SlotOf(uint64_t member_id) const;

  // An attempt begins: no rank has a slot. Then each rank gets one, in order.
  void Clear();
  void Add(uint64_t member_id, uint32_t worker, uint64_t incarnation);
  // The slot of a rank in an attempt of an earlier scheduler. Its worker has to come back.
  void AddAwaited(uint32_t worker, uint64_t incarnation, bool rejoins);
  void RestoreEnded(std::vector<EndedLife> ended) { ended_ = std::move(ended); }
  // The worker is back, and keeps its rank with this version of its desired state.
  void TakeBack(uint32_t rank, uint64_t member_id, uint64_t version);

  // The worker of the rank is lost, or the one that was taken for it while it was vacant. The next
  // life has this incarnation, unless an earlier loss has given the rank one already. `begun`: the
  // attempt runs, so that the next life rejoins. True when the rank was not vacant before.
  bool Lose(uint32_t rank, uint64_t incarnation, bool begun, const std::string& why,
            absl::Time now);
  // The worker is taken for the vacant rank.
  void Take(uint32_t rank, uint64_t member_id, uint32_t worker);
  // It is known where the vacant rank continues: after `sequence` of its lost life.
  void Settle(uint32_t rank, uint64_t sequence);
  // The worker taken for the vacant rank gets it with this version of its desired state.
  void Fill(uint32_t rank, uint64_t version);
  // No rank is vacant any more. Returns those that were.
  std::vector<uint32_t> ClearVacant();

  // Creates removal() if there is none.
  Removal& BeginRemoval();
  void EndRemoval() { removal_.reset(); }

  // The attempt is over. The slots stay: their workers have to stop.
  void EndAttempt();
  void Archive() { Clear(); }

 private:
  std::vector<RankSlot> slots_;
  absl::flat_hash_map<uint64_t, uint32_t> by_member_;  // ranks, by member id
  std::map<uint32_t, Vacancy> vacant_;
  std::optional<Removal> removal_;
  std::vector<EndedLife> ended_;
  RankCards cards_;
};

}  // namespace sluice

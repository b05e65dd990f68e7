#include "scheduler/job/job_ranks.h"

#include <algorithm>

namespace sluice {

// --------------------------------------------------------------------------------------- RankSlot

void RankSlot::Withdraw(uint64_t version) {
  state_ = State::kWithdrawn;
  withdrawn_version_ = version;
}

void RankSlot::SeenRunning() {
  has_run_ = true;
  idle_since_ = absl::InfiniteFuture();
}

absl::Time RankSlot::SeenIdle(uint64_t seen_version, absl::Time now) {
  // The member had not yet seen the assignment when it made this report.
  if (seen_version < told_version_) return absl::InfiniteFuture();
  idle_since_ = std::min(idle_since_, now);
  return idle_since_;
}

bool RankSlot::ConfirmsStop(uint64_t seen_version) const {
  return state_ == State::kWithdrawn && seen_version >= withdrawn_version_;
}

// -------------------------------------------------------------------------------------- RankCards

bool RankCards::Take(const RankGroupReport& report, uint64_t generation) {
  // Otherwise it would count as furthest ahead, and clear what the others have reported.
  if (report.generation() > generation) return false;
  RankGroupReport& known = reports_[report.rank()];
  const bool same_life = known.incarnation() == report.incarnation();
  // Lives count up, so a smaller number is one that is over.
  if (report.incarnation() < known.incarnation()) return false;
  if (same_life && report.generation() < known.generation()) return false;
  const bool held = same_life && known.holds_tables();
  const bool news = !same_life || report.generation() != known.generation() ||
                    report.card() != known.card() || report.error() != known.error() ||
                    (report.holds_tables() && !held);
  known = report;
  KeepSumsOnce(&known);
  // A life that held the tables once holds them until it ends. A report that arrives later may have
  // been made earlier.
  known.set_holds_tables(report.holds_tables() || held);
  return news;
}

void RankCards::KeepSumsOnce(RankGroupReport* newest) {
  // They may be large, and only the sums are used.
  for (TrainTotals& totals : *newest->mutable_totals()) totals.clear_net_state();
  if (newest->totals().empty()) return;
  for (auto& [rank, other] : reports_) {
    if (&other == newest || other.totals().empty()) continue;
    const bool newer = newest->generation() != other.generation()
                           ? newest->generation() > other.generation()
                           : newest->closed_steps() > other.closed_steps();
    (newer ? other : *newest).clear_totals();
  }
}

const RankGroupReport* RankCards::ReportOf(uint32_t rank, const RankSlot& slot,
                                           uint64_t generation) const {
  const auto found = reports_.find(rank);
  if (found == reports_.end()) return nullptr;
  const RankGroupReport& report = found->second;
  const bool present =
      report.generation() == generation && report.incarnation() == slot.incarnation();
  return present ? &report : nullptr;
}

std::vector<std::string> RankCards::Of(uint64_t generation,
                                       const std::vector<RankSlot>& slots) const {
  std::vector<std::string> cards;
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    const RankGroupReport* const report = ReportOf(rank, slots[rank], generation);
    if (report == nullptr || report->card().empty()) return {};
    cards.push_back(report->card());
  }
  return cards;
}

bool RankCards::Holds(uint32_t rank, uint64_t incarnation) const {
  const auto found = reports_.find(rank);
  return found != reports_.end() && found->second.incarnation() == incarnation &&
         found->second.holds_tables();
}

// --------------------------------------------------------------------------------------- JobRanks

bool JobRanks::released() const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const RankSlot& slot) { return slot.released(); });
}

std::optional<uint32_t> JobRanks::RankOf(uint64_t member_id) const {
  const auto rank = by_member_.find(member_id);
  if (rank == by_member_.end()) return std::nullopt;
  return rank->second;
}

RankSlot* JobRanks::SlotOf(uint64_t member_id) {
  const std::optional<uint32_t> rank = RankOf(member_id);
  return rank ? &slots_[*rank] : nullptr;
}

const RankSlot* JobRanks::SlotOf(uint64_t member_id) const {
  const std::optional<uint32_t> rank = RankOf(member_id);
  return rank ? &slots_[*rank] : nullptr;
}

void JobRanks::Clear() {
  slots_.clear();
  by_member_.clear();
}

void JobRanks::Add(uint64_t member_id, uint32_t worker, uint64_t incarnation) {
  by_member_[member_id] = static_cast<uint32_t>(slots_.size());
  slots_.emplace_back(member_id, worker, incarnation);
}

void JobRanks::AddAwaited(uint32_t worker, uint64_t incarnation, bool rejoins) {
  slots_.emplace_back(/*member_id=*/0, worker, incarnation, rejoins);
}

void JobRanks::TakeBack(uint32_t rank, uint64_t member_id, uint64_t version) {
  RankSlot& slot = slots_[rank];
  slot = RankSlot(member_id, slot.worker(), slot.incarnation(), slot.rejoins());
  slot.Assign(version);
  by_member_[member_id] = rank;
}

bool JobRanks::Lose(uint32_t rank, uint64_t incarnation, bool begun, const std::string& why,
                    absl::Time now) {
  RankSlot& slot = slots_[rank];
  by_member_.erase(slot.member_id());
  const bool assigned = !is_vacant(rank);
  const uint64_t lost = slot.incarnation();
  slot = RankSlot(/*member_id=*/0, slot.worker(), assigned ? incarnation : lost, begun);
  slot.Release();
  // Its next life has a number already, which the pservers know.
  if (!assigned) return false;
  // Before the attempt runs, a life has done nothing that another one would have to continue.
  vacant_[rank] = {now, why, lost, /*settled=*/!begun};
  return true;
}

void JobRanks::Take(uint32_t rank, uint64_t member_id, uint32_t worker) {
  by_member_[member_id] = rank;
  const RankSlot& slot = slots_[rank];
  slots_[rank] = RankSlot(member_id, worker, slot.incarnation(), slot.rejoins());
}

void JobRanks::Settle(uint32_t rank, uint64_t sequence) {
  Vacancy& vacancy = vacant_.at(rank);
  EndedLife& ended = ended_.emplace_back();
  ended.set_rank(rank);
  ended.set_incarnation(vacancy.lost_incarnation);
  ended.set_sequence(sequence);
  vacancy.settled = true;
}

void JobRanks::Fill(uint32_t rank, uint64_t version) {
  vacant_.erase(rank);
  slots_[rank].Assign(version);
}

std::vector<uint32_t> JobRanks::ClearVacant() {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, vacancy] : vacant_) ranks.push_back(rank);
  vacant_.clear();
  return ranks;
}

Removal& JobRanks::BeginRemoval() {
  if (!removal_) removal_.emplace();
  return *removal_;
}

void JobRanks::EndAttempt() {
  vacant_.clear();
  removal_.reset();
  ended_.clear();
  // Cards have the addresses of processes that stop now.
  cards_.Clear();
}

}  // namespace sluice

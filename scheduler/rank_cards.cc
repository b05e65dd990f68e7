#include "scheduler/rank_cards.h"

namespace sluice {

bool RankCards::Take(const RankGroupReport& report, uint64_t generation) {
  // Otherwise it would count as furthest ahead, and clear what the others have reported.
  if (report.generation() > generation) return false;
  RankGroupReport& known = reports_[report.rank()];
  const bool same_life = known.incarnation() == report.incarnation();
  if (report.incarnation() < known.incarnation()) return false;
  if (same_life && report.generation() < known.generation()) return false;
  const bool held = same_life && known.holds_tables();
  const bool news = !same_life || report.generation() != known.generation() ||
                    report.card() != known.card() || report.error() != known.error() ||
                    (report.holds_tables() && !held);
  known = report;
  KeepSumsOnce(&known);
  known.set_holds_tables(report.holds_tables() || held);
  return news;
}

void RankCards::KeepSumsOnce(RankGroupReport* newest) {
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

}  // namespace sluice

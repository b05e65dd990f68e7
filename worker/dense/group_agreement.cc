#include "worker/dense/group_agreement.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<Agreement> AgreeOn(const std::vector<RankStanding>& standings) {
  Agreement agreement;
  bool held = false;
  uint64_t known = 0, committed = 0;
  for (const RankStanding& rank : standings) {
    known = std::max(known, rank.known);
    committed = std::max(committed, rank.committed);
    if (!rank.holds) continue;
    held = true;
    agreement.closed = std::max(agreement.closed, rank.closed);
  }
  if (!held) return absl::AbortedError("no worker holds the dense tables any more");
  const uint64_t closed = agreement.closed;
  const auto is_at_end = [&](const RankStanding& rank) {
    return rank.holds && rank.closed == closed;
  };
  const auto has_means = [&](const RankStanding& rank) { return is_at_end(rank) && rank.means; };
  const auto first = std::find_if(standings.begin(), standings.end(), is_at_end);
  agreement.tables_from = static_cast<uint32_t>(first - standings.begin());
  const auto means = std::find_if(standings.begin(), standings.end(), has_means);
  if (means != standings.end())
    agreement.means_from = static_cast<uint32_t>(means - standings.begin());
  for (const RankStanding& rank : standings) {
    // Rule 1: such a rank has the gradients of the step that it has not closed yet.
    const bool updates = rank.holds && rank.closed + 1 == closed && rank.means;
    agreement.needs_tables.push_back(!is_at_end(rank) && !updates);
    agreement.needs_means.push_back(agreement.means_from.has_value() && !has_means(rank));
  }
  // A step that a lost rank has committed may have closed somewhere. Reducing it anew could give
  // other gradients than those with which it closed.
  const uint64_t most = std::max(known, committed);
  if (most > closed + 1 || (most == closed + 1 && !agreement.means_from)) {
    return absl::AbortedError(
        absl::StrCat("a lost worker has ended step ", most,
                     ", but the dense tables of the others are after step ", closed,
                     most == closed + 1 ? " and none of them has its gradients" : ""));
  }
  // Rule 3.
  agreement.closes = known == closed + 1;
  return agreement;
}

}  // namespace sluice

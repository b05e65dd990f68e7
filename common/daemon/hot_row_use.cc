#include "common/daemon/hot_row_use.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

double Share(uint64_t part, const HotRowUse& use) {
  const uint64_t uses = use.hits() + use.misses();
  return uses == 0 ? 0 : static_cast<double>(part) / static_cast<double>(uses);
}

}  // namespace

void Add(const HotRowUse& more, HotRowUse* sum) {
  sum->set_hits(sum->hits() + more.hits());
  sum->set_misses(sum->misses() + more.misses());
  sum->set_staleness_sum(sum->staleness_sum() + more.staleness_sum());
  sum->set_staleness_max(std::max(sum->staleness_max(), more.staleness_max()));
  sum->set_whole_batches(sum->whole_batches() + more.whole_batches());
}

double HitShare(const HotRowUse& use) { return Share(use.hits(), use); }

double MeanStaleness(const HotRowUse& use) { return Share(use.staleness_sum(), use); }

std::string Describe(const HotRowUse& use) {
  std::string text = absl::StrFormat("hot rows %.1f%% used again, %.1f steps old (at most %d)",
                                     100 * HitShare(use), MeanStaleness(use), use.staleness_max());
  if (use.whole_batches() > 0)
    absl::StrAppend(&text, ", ", use.whole_batches(), " batches pulled whole");
  return text;
}

}  // namespace sluice

#include "server/parked_pulls.h"

#include <algorithm>
#include <utility>

namespace sluice {

bool ParkedPulls::FullFor(uint32_t rank) const {
  const auto of_rank = [rank](const ParkedPull& p) { return p.caller.rank == rank; };
  // The common case needs no count.
  if (pulls_.size() < per_rank_) return false;
  return static_cast<size_t>(std::count_if(pulls_.begin(), pulls_.end(), of_rank)) >= per_rank_;
}

void ParkedPulls::MakeRoom() {
  if (pulls_.size() == pulls_.capacity()) pulls_.reserve(2 * pulls_.size() + 1);
}

std::vector<ParkedPull> ParkedPulls::Take(absl::FunctionRef<bool(const ParkedPull&)> wanted) {
  std::vector<ParkedPull> taken;
  auto kept = std::find_if(pulls_.begin(), pulls_.end(), wanted);
  if (kept == pulls_.end()) return taken;
  taken.reserve(pulls_.end() - kept);  // The only allocation, before anything has moved.
  taken.push_back(std::move(*kept));
  for (auto it = kept + 1; it != pulls_.end(); ++it) {
    if (wanted(*it)) {
      taken.push_back(std::move(*it));
    } else {
      *kept++ = std::move(*it);
    }
  }
  pulls_.erase(kept, pulls_.end());
  return taken;
}

}  // namespace sluice

#include "server/parked_pulls.h"

#include <algorithm>
#include <utility>

namespace sluice {

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

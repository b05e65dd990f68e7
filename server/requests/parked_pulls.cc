#include "server/requests/parked_pulls.h"

#include <algorithm>
#include <utility>

namespace sluice {

size_t ParkedPulls::BytesOf(const Pull& pull, const PayloadReader& payload) {
  return payload.message_bytes() + pull.SpaceUsedLong();
}

bool ParkedPulls::FullFor(uint32_t rank, size_t bytes) const {
  // The common case needs no count.
  if (pulls_.size() < per_rank_ && bytes_ + bytes <= bytes_per_rank_) return false;
  size_t pulls = 0, of_rank = 0;
  for (const ParkedPull& p : pulls_) {
    if (p.caller.rank != rank) continue;
    ++pulls;
    of_rank += p.bytes;
  }
  return pulls >= per_rank_ || (pulls > 0 && of_rank + bytes > bytes_per_rank_);
}

void ParkedPulls::MakeRoom() {
  // Doubles, as push_back would: room for one more each time would copy all pulls each time.
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
  for (const ParkedPull& p : taken) bytes_ -= p.bytes;
  return taken;
}

}  // namespace sluice

#include "scheduler/job/job_pservers.h"

#include <algorithm>

namespace sluice {

std::optional<uint32_t> JobPservers::IndexOf(uint64_t member_id) const {
  const auto at = std::find(members_.begin(), members_.end(), member_id);
  if (at == members_.end()) return std::nullopt;
  return static_cast<uint32_t>(at - members_.begin());
}

void JobPservers::Await() {
  // The ids of the earlier scheduler mean nothing here.
  members_.assign(ranks_.size(), 0);
  placed_on_ = ranks_;
}

void JobPservers::Lose(uint32_t index, PserverVacancy vacancy) {
  members_[index] = 0;
  vacant_[index] = std::move(vacancy);
}

absl::Time JobPservers::NoteCopies(bool complete, absl::Time now) {
  copies_missing_since_ = complete ? absl::InfiniteFuture() : std::min(copies_missing_since_, now);
  return copies_missing_since_;
}

}  // namespace sluice

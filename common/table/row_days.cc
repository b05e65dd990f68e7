#include "common/table/row_days.h"

#include <algorithm>

namespace sluice {

void RowDays::Begin(int32_t day, uint64_t step) {
  if (!days_.empty() && (day <= days_.back().day || step < days_.back().step)) return;
  days_.push_back({day, step});
  if (days_.size() > kMost) days_.erase(days_.begin());
}

int32_t RowDays::DayOf(uint64_t step) const {
  const auto after =
      std::upper_bound(days_.begin(), days_.end(), step,
                       [](uint64_t at, const Start& start) { return at < start.step; });
  return after == days_.begin() ? after->day : (after - 1)->day;
}

uint64_t RowDays::FirstStepSince(int32_t day) const {
  const auto at = std::lower_bound(days_.begin(), days_.end(), day,
                                   [](const Start& start, int32_t d) { return start.day < d; });
  if (at == days_.begin()) return 0;
  return at == days_.end() ? UINT64_MAX : at->step;
}

void RowDays::Prune(uint32_t days) {
  const int64_t oldest = int64_t{days_.empty() ? 0 : today()} - days;
  size_t drop = 0;
  while (drop + 1 < days_.size() && days_[drop + 1].day < oldest) ++drop;
  days_.erase(days_.begin(), days_.begin() + static_cast<int64_t>(drop));
}

void RowDays::Write(ShardFacts* facts) const {
  for (const Start& start : days_) {
    DayStart* const one = facts->add_days();
    one->set_day(start.day);
    one->set_schedule_step(start.step);
  }
}

void RowDays::Restore(const ShardFacts& facts) {
  days_.clear();
  // A file or a peer may bring any list; Begin keeps it ascending and bounded.
  for (const DayStart& one : facts.days()) Begin(one.day(), one.schedule_step());
}

}  // namespace sluice

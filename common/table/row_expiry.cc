#include "common/table/row_expiry.h"

#include <algorithm>

namespace sluice {

uint64_t RowExpiry::LiveFrom(uint64_t step, const RowDays& days) const {
  uint64_t from = after_steps_ > 0 && step > after_steps_ ? step - after_steps_ : 0;
  if (after_days_ > 0 && !days.empty()) {
    const int64_t oldest = int64_t{days.today()} - after_days_;
    if (oldest > INT32_MIN)
      from = std::max(from, days.FirstStepSince(static_cast<int32_t>(oldest)));
  }
  return from;
}

uint64_t RowExpiry::EndOf(uint64_t last_seen, const RowDays& days) const {
  uint64_t end = UINT64_MAX;
  if (after_steps_ > 0 && last_seen < UINT64_MAX - after_steps_) end = last_seen + after_steps_ + 1;
  if (after_days_ > 0 && !days.empty()) {
    const int64_t last_day = int64_t{days.DayOf(last_seen)} + after_days_;
    if (last_day < days.today())
      end = std::min(end, days.FirstStepSince(static_cast<int32_t>(last_day + 1)));
  }
  return end;
}

}  // namespace sluice

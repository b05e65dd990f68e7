#include "model/table_files/row_ages.h"

namespace sluice {

RowAges::RowAges(const ExpireConfig& expire, const ShardFacts& facts)
    : expiry_(expire), now_(facts.schedule_steps()) {
  days_.Restore(facts);
  live_from_ = expiry_.LiveFrom(now_, days_);
}

uint64_t RowAges::Days(uint64_t last_seen) const {
  return static_cast<uint64_t>(int64_t{days_.today()} - days_.DayOf(last_seen));
}

}  // namespace sluice

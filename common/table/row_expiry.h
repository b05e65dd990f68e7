// Decides which rows of a shard have expired (ExpireConfig). A row expires at a schedule step, and
// counts as missing from then on, whether or not its memory has been returned.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>

#include "common/table/row_days.h"
#include "proto/config.pb.h"

namespace sluice {

class RowExpiry {
 public:
  // Absent options expire nothing.
  explicit RowExpiry(const ExpireConfig& config)
      : after_steps_(config.after_steps()),
        after_days_(config.after_days()),
        min_count_(config.min_count()) {}

  bool on() const { return after_steps_ > 0 || after_days_ > 0; }

  // Rows whose last update was before the returned schedule step have expired at `step`, unless
  // their count keeps them.
  uint64_t LiveFrom(uint64_t step, const RowDays& days) const;
  bool Expired(uint64_t last_seen, uint32_t count, uint64_t live_from) const {
    return last_seen < live_from && Expires(count);
  }
  // False: its count of updates keeps the row for ever.
  bool Expires(uint32_t count) const { return min_count_ == 0 || count < min_count_; }
  // The first schedule step at which a row with this last update has expired, if one is known.
  uint64_t EndOf(uint64_t last_seen, const RowDays& days) const;

 private:
  const uint64_t after_steps_;
  const uint32_t after_days_;
  const uint32_t min_count_;
};

}  // namespace sluice

// How old the rows of a shard are at the moment of its cut, and which of them have expired.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>

#include "common/table/row_days.h"
#include "common/table/row_expiry.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

class RowAges {
 public:
  // `facts` are those of the shard in a checkpoint. Both may go afterwards.
  RowAges(const ExpireConfig& expire, const ShardFacts& facts);

  // Schedule steps since the last update, the step of the cut included.
  uint64_t Steps(uint64_t last_seen) const { return last_seen < now_ ? now_ - last_seen : 0; }
  // The shard knows when its days began.
  bool has_days() const { return !days_.empty(); }
  // Days from the day of the last update to the present one. Rows from before the first known day
  // count as seen on it.
  // REQUIRES: has_days.
  uint64_t Days(uint64_t last_seen) const;
  // The job reads the row as missing.
  bool Expired(uint64_t last_seen, uint32_t count) const {
    return expiry_.Expired(last_seen, count, live_from_);
  }

 private:
  const RowExpiry expiry_;
  const uint64_t now_;  // schedule steps done
  RowDays days_;
  uint64_t live_from_ = 0;  // RowExpiry::LiveFrom
};

}  // namespace sluice

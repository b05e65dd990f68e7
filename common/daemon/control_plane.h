// Limits that both ends of the scheduler's calls agree on.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace sluice {

// How long a scheduler may be silent before its members give up. A scheduler that was paused for a
// few leases loses no member.
inline absl::Duration SchedulerPatience(absl::Duration lease) {
  return std::max(absl::Seconds(20), 4 * lease);
}

// The limit of one message in either direction. limits.max_message_mib does not apply here: it is
// for the data plane and may be small. The largest message carries the sums of an evaluation, at
// most 2 x 2^20 bins of 11 bytes.
inline constexpr int kMaxControlMessageBytes = 64 << 20;

}  // namespace sluice

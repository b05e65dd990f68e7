// What both ends of the scheduler's calls agree on.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace sluice {

// How long a scheduler may be silent until those who wait for it give it up: it can have been
// stopped for some leases and lose nobody.
inline absl::Duration SchedulerPatience(absl::Duration lease) {
  return std::max(absl::Seconds(20), 4 * lease);
}

// Of one message, either way. Not limits.max_message_mib, which is for the data plane and may be
// small: the largest message here is the evaluation's sums, at most 2 x 2^20 bins of 11 bytes.
inline constexpr int kMaxControlMessageBytes = 64 << 20;

}  // namespace sluice

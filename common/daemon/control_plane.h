// What both ends of the scheduler's calls agree on.
#pragma once

namespace sluice {

// Of one message, either way. Not limits.max_message_mib, which is for the data plane and may be
// small: the largest message here is the evaluation's sums, at most 2 x 2^20 bins of 11 bytes.
inline constexpr int kMaxControlMessageBytes = 64 << 20;

}  // namespace sluice

#include "server/shards/age_histogram.h"

#include <algorithm>

namespace sluice {
namespace {

// From the first step of the oldest live row to the present one there are so many more intervals
// than after_steps has; and shards that were put together from others may be a little ahead.
constexpr uint64_t kMore = 4;

int ShiftFor(uint64_t after_steps) {
  int shift = 0;
  while ((after_steps >> shift) + kMore > AgeHistogram::kMostIntervals) ++shift;
  return shift;
}

size_t RingFor(uint64_t intervals) {
  size_t size = 8;
  while (size < intervals) size *= 2;
  return size;
}

}  // namespace

AgeHistogram::AgeHistogram(uint64_t after_steps)
    : shift_(ShiftFor(after_steps)), intervals_(RingFor((after_steps >> shift_) + kMore)) {}

void AgeHistogram::Clear(uint64_t live_from) {
  first_ = live_from >> shift_;
  expired_ = beyond_ = 0;
  std::fill(intervals_.begin(), intervals_.end(), 0);
}

void AgeHistogram::Advance(uint64_t live_from) {
  const uint64_t first = live_from >> shift_;
  for (size_t i = 0; i < intervals_.size() && first_ < first; ++i, ++first_) {
    uint32_t* const passed = &intervals_[first_ & mask_];
    expired_ += *passed;
    *passed = 0;
  }
  first_ = std::max(first_, first);
}

}  // namespace sluice

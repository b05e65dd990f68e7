// Dynamic loss scaling for FP16: finds the factor that keeps small gradients representable.
//
// The scale starts at 128, doubles after 1,000 good steps in a row, and halves after 2 overflows
// without a good step between them. It is always a power of two, so that scaling back is exact.
//
// Source: Micikevicius et al. 2018, section 3.2; the numbers are from Paddle's GradScaler.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice {

class LossScaler {
 public:
  static constexpr double kStart = 128, kLowest = 1, kHighest = 0x1p24;
  static constexpr uint32_t kGoodSteps = 1000, kOverflows = 2;

  double scale() const { return scale_; }
  uint64_t skipped() const { return skipped_; }
  // True after two overflows at the lowest scale: the values themselves are too large.
  bool hopeless() const { return hopeless_; }

  // For a checkpoint: the scale and the counts, as text.
  std::string Save() const;
  // Restores the result of Save. INVALID_ARGUMENT, without any change, when the text is not one.
  absl::Status Restore(const std::string& saved);

  // Adjusts the scale after a step at scale().
  void Update(bool overflowed) {
    if (!overflowed) {
      overflows_ = 0;
      if (++good_ < kGoodSteps) return;
      good_ = 0;
      if (scale_ < kHighest) scale_ *= 2;
      return;
    }
    ++skipped_;
    good_ = 0;
    if (++overflows_ < kOverflows) return;
    overflows_ = 0;
    hopeless_ = scale_ <= kLowest;
    if (!hopeless_) scale_ *= 0.5;
  }

 private:
  double scale_ = kStart;
  uint32_t good_ = 0, overflows_ = 0;  // in a row
  uint64_t skipped_ = 0;
  bool hopeless_ = false;
};

}  // namespace sluice

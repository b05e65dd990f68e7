// Dynamic loss scaling for FP16: gradients are computed times a factor that keeps small ones above
// what fp16 can hold, found by trying.
//
// Rule (Micikevicius et al. 2018, section 3.2; the numbers as in Paddle's GradScaler): start at
// 128; x 2 after 1,000 good steps in a row; x 0.5 after 2 overflows without a good step between
// them. A power of two always, so that scaling back is exact. Thread safety: one thread.
#pragma once

#include <cstdint>

namespace sluice {

class LossScaler {
 public:
  static constexpr double kStart = 128, kLowest = 1, kHighest = 0x1p24;
  static constexpr uint32_t kGoodSteps = 1000, kOverflows = 2;

  double scale() const { return scale_; }
  uint64_t skipped() const { return skipped_; }
  // It overflowed twice at the lowest scale: the values themselves are too large.
  bool hopeless() const { return hopeless_; }

  // What became of a step at scale().
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

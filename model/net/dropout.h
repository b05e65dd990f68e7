// Inverted dropout whose mask is a function of (seed, epoch, example, layer, unit): the same on
// whatever worker, in whatever batch, an example is trained.
//
// Format: unit u reads half u % 2 (low first) of word u / 2 of the example's and layer's stream.
// Changing it changes what a sync job computes. Thread safety: immutable.
#pragma once

#include <cstdint>

#include "common/base/hash.h"

namespace sluice {

class Dropout {
 public:
  Dropout() = default;
  // rate in [0, 1): the probability that a unit is dropped.
  Dropout(float rate, uint64_t seed, uint32_t epoch)
      : threshold_(static_cast<uint32_t>(static_cast<double>(rate) * 0x1p32)),
        scale_(static_cast<float>(1.0 / (1.0 - static_cast<double>(rate)))),
        seed_(CombineHash(CombineHash(seed, 0x64726F706F7574), epoch)) {}

  bool active() const { return threshold_ != 0; }
  // What a kept unit is multiplied by.
  float scale() const { return scale_; }

  bool Keep(uint64_t example_id, uint32_t layer, uint32_t unit) const {
    const uint64_t word = Word(Stream(example_id, layer), unit / 2);
    return static_cast<uint32_t>(word >> (32 * (unit % 2))) >= threshold_;
  }

  // units [n]: scaled, or zero when dropped.
  void Apply(uint64_t example_id, uint32_t layer, float* units, uint32_t n) const {
    const uint64_t stream = Stream(example_id, layer);
    for (uint32_t u = 0; u < n; u += 2) {
      const uint64_t word = Word(stream, u / 2);
      units[u] = static_cast<uint32_t>(word) >= threshold_ ? units[u] * scale_ : 0.0f;
      if (u + 1 < n)
        units[u + 1] =
            static_cast<uint32_t>(word >> 32) >= threshold_ ? units[u + 1] * scale_ : 0.0f;
    }
  }

 private:
  uint64_t Stream(uint64_t example_id, uint32_t layer) const {
    return CombineHash(CombineHash(seed_, example_id), layer);
  }
  static uint64_t Word(uint64_t stream, uint32_t index) {
    return MixHash(stream + index * 0x9E3779B97F4A7C15u);
  }

  uint32_t threshold_ = 0;
  float scale_ = 1;
  uint64_t seed_ = 0;
};

}  // namespace sluice

// Inverted dropout whose mask is a function of (seed, epoch, example, layer, unit).
//
// An example has the same mask on every worker and in every batch.
//
// Format: unit u reads half u % 2 (low first) of word u / 2 of the stream of the example and layer.
// A change of this format changes the results of sync jobs.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"
#include "common/base/mix_hash.h"

namespace sluice {

class Dropout {
 public:
  Dropout() = default;
  // rate in [0, 1): the probability that a unit is dropped.
  Dropout(float rate, uint64_t seed, uint32_t epoch)
      : threshold_(static_cast<uint32_t>(static_cast<double>(rate) * 0x1p32)),
        scale_(static_cast<float>(1.0 / (1.0 - static_cast<double>(rate)))),
        seed_(CombineHash(CombineHash(seed, 0x64726F706F7574), epoch)) {}

  SLUICE_HD bool active() const { return threshold_ != 0; }
  // The factor of a kept unit.
  SLUICE_HD float scale() const { return scale_; }

  SLUICE_HD bool Keep(uint64_t example_id, uint32_t layer, uint32_t unit) const {
    return Keep(Word(Stream(example_id, layer), unit / 2), unit);
  }

  // The factors, scale() or 0, of unit `unit` (even) and the next one, as Apply multiplies them.
  SLUICE_HD void PairFactors(uint64_t example_id, uint32_t layer, uint32_t unit,
                             float factors[2]) const {
    const uint64_t word = Word(Stream(example_id, layer), unit / 2);
    factors[0] = Keep(word, unit) ? scale_ : 0.0f;
    factors[1] = Keep(word, unit + 1) ? scale_ : 0.0f;
  }

  // Scales the units [n], or sets them to zero when they are dropped.
  void Apply(uint64_t example_id, uint32_t layer, float* units, uint32_t n) const {
    const uint64_t stream = Stream(example_id, layer);
    for (uint32_t u = 0; u < n; u += 2) {
      const uint64_t word = Word(stream, u / 2);
      units[u] = Keep(word, u) ? units[u] * scale_ : 0.0f;
      if (u + 1 < n) units[u + 1] = Keep(word, u + 1) ? units[u + 1] * scale_ : 0.0f;
    }
  }

 private:
  SLUICE_HD uint64_t Stream(uint64_t example_id, uint32_t layer) const {
    return CombineHash(CombineHash(seed_, example_id), layer);
  }
  SLUICE_HD static uint64_t Word(uint64_t stream, uint32_t index) {
    return MixHash(stream + index * 0x9E3779B97F4A7C15u);
  }
  SLUICE_HD bool Keep(uint64_t word, uint32_t unit) const {
    return static_cast<uint32_t>(word >> (32 * (unit % 2))) >= threshold_;
  }

  uint32_t threshold_ = 0;
  float scale_ = 1;
  uint64_t seed_ = 0;
};

}  // namespace sluice

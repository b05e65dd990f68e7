// Decides which keys of a sparse shard get a row: a count-min sketch of the updates of keys that
// have none, and the rule of AdmitConfig.
//
// Source: G. Cormode and S. Muthukrishnan, "An improved data stream summary: the count-min sketch
// and its applications", Journal of Algorithms 55(1), 2005. Without conservative update: the
// counters are plain sums, so they do not depend on the order in which keys are added.
//
// Error bound: a count is never too low, up to kMost. For one key, it is too high by more than
// e / width() x U with a probability of at most e^-4 = 1.8 %, where U is the number of all keys
// added so far. So a key may be admitted early, and never late.
//
// Memory: kDepth x width() counters of 2 bytes.
//
// Thread safety: guarded by the owner's lock (the shard's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

class AdmissionSketch {
 public:
  static constexpr uint32_t kDepth = 4;
  static constexpr uint32_t kMost = 65535;  // counters stay there

  // Takes at most `bytes`, and at least 8: a counter a row.
  explicit AdmissionSketch(size_t bytes);

  void Add(uint64_t key);
  // How often the key was added, or more.
  uint32_t Count(uint64_t key) const;
  uint64_t width() const { return width_; }  // counters of one of the kDepth rows

  // The counters as bytes, the same for the same keys in any order. Empty: all are 0.
  std::string Image() const;
  // False, and nothing has changed, when the image is that of a sketch of another size.
  bool Restore(std::string_view image);

 private:
  size_t Place(uint64_t key, uint32_t row) const;

  const uint64_t width_;
  bool any_ = false;                // a counter is not 0
  std::vector<uint16_t> counters_;  // [kDepth][width]
};

class AdmissionRule {
 public:
  // `sketch_bytes` and `stream` are those of the TableLayout.
  AdmissionRule(const AdmitConfig& config, uint64_t sketch_bytes, uint64_t stream);

  // Whether a key gets its row with the update that has just been added to the sketch. Add all keys
  // of an update before you ask for one of them, so that their order does not matter.
  bool Admits(uint64_t key) const;
  AdmissionSketch* sketch() { return &sketch_; }

 private:
  const AdmitConfig config_;
  const uint64_t stream_;
  AdmissionSketch sketch_;
};

}  // namespace sluice

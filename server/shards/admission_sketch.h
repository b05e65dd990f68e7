// Decides which keys of a sparse shard get a row: a count-min sketch of the updates of keys that
// have none, and the rule of AdmitConfig.
//
// Source: G. Cormode and S. Muthukrishnan, "An improved data stream summary: the count-min sketch
// and its applications", Journal of Algorithms 55(1), 2005. Without conservative update: the
// counters are plain sums, so they do not depend on the order in which keys are added.
//
// Ageing: G. Einziger, R. Friedman and B. Manes, "TinyLFU: a highly efficient cache admission
// policy", ACM Transactions on Storage 13(4), 2017. Once updates() reaches most_updates(), it and
// all counters are halved, so that the sketch of a table that lives for years stays of use.
//
// Error bound: between two halvings, a count is never too low, up to kMost. For one key, it is too
// high by more than e / width() x updates() with a probability of at most e^-4 = 1.8 %. Age keeps
// that product below 1: but for the keys of the present step, at most 1.8 % of the counts are too
// high at all. A halving forgets half of what a key had, so that a key may be admitted late; one
// that is added often enough between two halvings is not.
//
// Memory: kDepth x width() counters of 2 bytes.
//
// Format of an image: counters [kDepth][width] | updates, a uint64 | halvings, a uint32; little
// endian. An image of an earlier version ends after the counters, so that its size is divisible
// by 8.
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
  // Halves the counters as often as there are too many updates. Call it at the end of an update
  // (EndUpdate), so that neither the order of keys nor the number of pservers matters.
  void Age();

  uint64_t bytes() const { return counters_.size() * sizeof(uint16_t); }
  uint64_t width() const { return width_; }      // counters of one of the kDepth rows
  uint64_t updates() const { return updates_; }  // keys added, halved with the counters
  uint64_t most_updates() const { return most_updates_; }
  uint32_t halvings() const { return halvings_; }

  // The same for the same keys in any order. Empty: nothing was added.
  std::string Image() const;
  // False, and nothing has changed, when the image is that of a sketch of another size.
  bool Restore(std::string_view image);

 private:
  size_t Place(uint64_t key, uint32_t row) const;

  const uint64_t width_;
  const uint64_t most_updates_;
  uint64_t updates_ = 0;
  uint32_t halvings_ = 0;
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

// What a pserver must hold after a session, computed in the plainest way: the oracle of the fuzzer
// pserver_session.
//
// All tables run SGD with learning rate 1 from initial value 0, every weight is 1, gradients are
// multiples of 4, and there are 1, 2 or 4 workers. So every value is an integer, every mean is
// exact, and a part that is applied twice or lost changes the result.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/errors.pb.h"

namespace sluice {

// One shard: which frames of each rank it has, and its values by key. A dense block is key 0.
class PlainShard {
 public:
  using Values = std::map<uint64_t, std::vector<float>>;
  enum Mode { kSync, kAsync, kGeo };

  PlainShard(Mode mode, uint32_t workers, uint32_t gradients_to_wait)
      : mode_(mode), workers_(workers), wait_(gradients_to_wait), ranks_(workers) {}

  // A later life of the rank has spoken.
  void Fence(uint32_t rank) {
    if (mode_ != kSync) ranks_[rank].last = 0;
  }
  PartStatus Apply(uint32_t rank, uint64_t sequence, const Values& gradient) {
    Rank& r = ranks_[rank];
    if (mode_ == kSync && sequence > closed_ + 1) return PART_OUT_OF_ORDER;
    if (sequence <= r.last) return PART_OK;
    if (sequence != r.last + 1) return PART_OUT_OF_ORDER;
    r.last = sequence;
    if (mode_ == kSync) {
      r.pending = gradient;
    } else if (mode_ == kGeo) {
      Add(gradient, 1.0f / static_cast<float>(workers_), &values_);
    } else {
      Add(gradient, 1, &held_);
      if (++held_frames_ == wait_) Flush();
    }
    return PART_OK;
  }
  // Sync: every rank has committed the open step.
  void CloseStep() {
    for (Rank& r : ranks_) {
      if (r.pending.has_value()) Add(*r.pending, -1.0f / static_cast<float>(workers_), &values_);
      r.pending.reset();
    }
    ++closed_;
  }
  void Flush() {
    if (held_frames_ == 0) return;
    Add(held_, -1.0f / static_cast<float>(held_frames_), &values_);
    held_.clear();
    held_frames_ = 0;
  }

  uint64_t last(uint32_t rank) const { return ranks_[rank].last; }
  std::vector<float> Get(uint64_t key, size_t dim) const {
    const auto at = values_.find(key);
    return at == values_.end() ? std::vector<float>(dim, 0.0f) : at->second;
  }

 private:
  struct Rank {
    uint64_t last = 0;
    std::optional<Values> pending;
  };
  static void Add(const Values& from, float scale, Values* to) {
    for (const auto& [key, values] : from) {
      std::vector<float>& sum = (*to)[key];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[i] += scale * values[i];
    }
  }

  Mode mode_;
  uint32_t workers_, wait_;
  std::vector<Rank> ranks_;
  uint64_t closed_ = 0;
  Values values_, held_;
  uint32_t held_frames_ = 0;
};

}  // namespace sluice

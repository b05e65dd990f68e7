// Bounds of the counts that pservers may hold while ranks push at random. It is the plain reference
// of the model check (data_plane_model_test.cc).
//
// Each push of a rank adds one to the rank's count of some items. An item stands for a sparse row
// or for the dense table. Until a push is acknowledged, nobody knows whether it is applied: a count
// lies between the acknowledged pushes and those that were started. It never falls.
//
// Thread safety: safe from any thread. The functions with a rank belong to the thread that plays
// it.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace sluice {

class PlainCounts {
 public:
  static constexpr uint32_t kRanks = 4;
  using Counts = std::array<uint64_t, kRanks>;

  explicit PlainCounts(uint32_t items) : items_(items) {}

  // The rank is about to push to these items.
  void Start(uint32_t rank, std::vector<uint32_t> items) {
    MutexLock lock(&mutex_);
    for (const uint32_t item : items) ++items_[item].started[rank];
    ranks_[rank].pushes.push_back(std::move(items));
  }
  // All but the last `in_flight` pushes of the rank's life are acknowledged.
  void Acknowledge(uint32_t rank, size_t in_flight) {
    MutexLock lock(&mutex_);
    Rank& r = ranks_[rank];
    for (; r.acknowledged + in_flight < r.pushes.size(); ++r.acknowledged) {
      for (const uint32_t item : r.pushes[r.acknowledged]) ++items_[item].acknowledged[rank];
    }
  }

  // The least counts that a read of `item` may find from now on.
  Counts Least(uint32_t item) const {
    MutexLock lock(&mutex_);
    Counts least;
    for (uint32_t r = 0; r < kRanks; ++r)
      least[r] = std::max(items_[item].acknowledged[r], items_[item].seen[r]);
    return least;
  }
  // Pushes of the rank that have been started. The reply to its last exchange holds at least these.
  uint64_t Started(uint32_t rank, uint32_t item) const {
    MutexLock lock(&mutex_);
    return items_[item].started[rank];
  }
  // Takes what a read has found that began after Least. Empty when that is possible.
  std::string Read(uint32_t item, const Counts& least, const Counts& found) {
    MutexLock lock(&mutex_);
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (found[r] < least[r] || found[r] > items_[item].started[r]) {
        return absl::StrCat("item ", item, " has ", found[r], " pushes of rank ", r, ", not ",
                            least[r], " to ", items_[item].started[r]);
      }
      items_[item].seen[r] = std::max(items_[item].seen[r], found[r]);
    }
    return "";
  }

  // The rank's life is over, and no push of it is applied any more. found[item] is what there is
  // of it. Each shard must hold the pushes of the life up to one that was not acknowledged yet.
  // Empty when it does.
  std::string EndLife(uint32_t rank, const std::vector<uint64_t>& found,
                      const std::vector<uint32_t>& shard_of) {
    MutexLock lock(&mutex_);
    Rank& r = ranks_[rank];
    for (uint32_t shard = 0; shard <= *std::max_element(shard_of.begin(), shard_of.end());
         ++shard) {
      std::vector<uint64_t> counts =
          r.before.empty() ? std::vector<uint64_t>(items_.size()) : r.before;
      bool possible = false;
      for (size_t applied = 0;; ++applied) {
        bool same = applied >= r.acknowledged;
        for (uint32_t item = 0; item < items_.size(); ++item)
          same = same && (shard_of[item] != shard || counts[item] == found[item]);
        possible = possible || same;
        if (applied == r.pushes.size()) break;
        for (const uint32_t item : r.pushes[applied]) ++counts[item];
      }
      if (!possible) {
        return absl::StrCat("shard ", shard, " does not hold the first n of the ", r.pushes.size(),
                            " pushes of rank ", rank, ", of which ", r.acknowledged,
                            " were acknowledged");
      }
    }
    for (uint32_t item = 0; item < items_.size(); ++item) {
      items_[item].started[rank] = items_[item].acknowledged[rank] = found[item];
    }
    r = Rank();
    r.before = found;
    return "";
  }

 private:
  struct Item {
    Counts started = {}, acknowledged = {}, seen = {};
  };
  struct Rank {
    std::vector<uint64_t> before;               // by item: of earlier lives; empty: none
    std::vector<std::vector<uint32_t>> pushes;  // of this life
    size_t acknowledged = 0;                    // of pushes
  };

  mutable Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::array<Rank, kRanks> ranks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

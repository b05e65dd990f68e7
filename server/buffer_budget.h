// Bounds the gradients of sparse tables that a rank of a job may have waiting on this pserver: for
// their step to close (sync), or for gradients_to_wait (async). Gradients of a dense table need no
// budget, since a block has one place for each rank.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace sluice {

class BufferBudget {
 public:
  // `most`: bytes of each rank.
  BufferBudget(uint32_t ranks, uint64_t most) : most_(most), taken_(ranks) {}

  // False, and nothing is taken, when the rank would have more than most().
  bool Take(uint32_t rank, uint64_t bytes);
  void Give(uint32_t rank, uint64_t bytes);

  uint64_t most() const { return most_; }
  uint64_t taken(uint32_t rank) const { return taken_[rank].load(std::memory_order_relaxed); }

 private:
  const uint64_t most_;
  // By rank. Relaxed: counters, on which nothing else depends.
  std::vector<std::atomic<uint64_t>> taken_;
};

}  // namespace sluice

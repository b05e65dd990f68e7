// Computes and bounds how many bytes of gradients for sparse tables wait on a pserver: for their
// step to close (sync), or for gradients_to_wait (async).
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/shards/shard.h"

namespace sluice {

// Bytes of a key and its gradient, in float32, or in float64 as a part of a sum.
inline uint64_t BufferedRowBytes(const TableLayout& table, bool as_sum) {
  return sizeof(uint64_t) + uint64_t{table.dim()} * (as_sum ? sizeof(double) : sizeof(float));
}

// The bytes that a step of sync may buffer on a pserver.
struct SparseBuffers {
  uint64_t bytes = 0;
  uint64_t most = 0;  // for the table `name`, if all keys are in it
  std::string name;
};

// Returns the bytes that all workers of the job together buffer on pserver `self` of the route.
// Assumes the most keys that the job's features can have in its batches, which its sparse tables
// share. A feature with several values in a cell counts as one with a single value.
SparseBuffers SparseBuffersOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self);

// Returns a bound for what one rank buffers there, which no rank of the job needs to exceed:
// - four times its part of SparseBuffersOf (async: of gradients_to_wait frames), and 4 MiB. Lanes
//   that do not divide evenly can double the examples of a rank, and keys fall on shards by chance.
// - The data decides how many values the cells of a multi-valued feature have. With such features
//   the bound is therefore what all of their keys take, if they have a limit, but at most half of
//   `available`, the memory that the process can get: the rows of these keys take as much again.
uint64_t MostBufferedOfRank(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                            const UpdatePolicy& policy, uint64_t available);

// Bounds the gradients of sparse tables that a rank of a job may have waiting on this pserver.
// Gradients of a dense table need no budget, since a block has one place for each rank.
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

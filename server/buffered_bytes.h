// Computes how many bytes of gradients for sparse tables wait on a pserver, as far as a job's
// configuration tells: for their step to close (sync), or for gradients_to_wait (async).
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/shard.h"

namespace sluice {

// Bytes of a key and its gradient, in float32, or in float64 as a part of a sum.
inline uint64_t BufferedRowBytes(const TableLayout& table, bool as_sum) {
  return sizeof(uint64_t) + uint64_t{table.dim()} * (as_sum ? sizeof(double) : sizeof(float));
}

// What a step of sync may buffer on a pserver.
struct SparseBuffers {
  uint64_t bytes = 0;
  uint64_t most = 0;  // for the table `name`
  std::string name;
};

// What the workers of the job together buffer on pserver `self` of the route, with the most keys
// that the job's features can have in its batches. A feature with several values in a cell counts
// as one with a single value.
SparseBuffers SparseBuffersOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self);

// Returns a bound for what one rank buffers there, which no rank of the job needs to exceed:
// - four times its part of SparseBuffersOf (async: of gradients_to_wait frames), and 4 MiB. Lanes
//   that do not divide evenly can double the examples of a rank, and keys fall on shards by chance.
// - The data decides how many values the cells of a multi-valued feature have. With such features
//   the bound is therefore what all of their keys take, if they have a limit, but at most half of
//   `available`, the memory that the process can get: the rows of these keys take as much again.
uint64_t MostBufferedOfRank(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                            const UpdatePolicy& policy, uint64_t available);

}  // namespace sluice

// Reduces and exchanges arrays between the ranks of one job, without a pserver.
//
// All ranks call the same methods in the same order with the same sizes. The operations of a rank
// run in that order. Results do not depend on timing, nor on sizes of chunks: shm, gloo and
// nccl sum in the order of the ranks and give the same bits; two_level sums inside each host first.
//
//   Listen   every rank says how the others reach it
//   Join     every rank gets what all have said; returns once the group is complete
//   ...      operations
//   Leave    or the destructor
//
// Errors: UNAVAILABLE when a rank has ended or its connection broke, DEADLINE_EXCEEDED when a rank
// has not taken part in time, INVALID_ARGUMENT when ranks disagree about an operation (kind, size,
// step), DATA_LOSS when one has written what no correct rank would. Each names the rank where it is
// known. No call waits longer than CollectiveOptions::timeout without progress of the others. After
// an error the group is unusable: every later call returns the same error, and the arrays hold
// unspecified values. A next group needs Listen and Join with a higher generation. Before Join,
// operations are FAILED_PRECONDITION.
//
// Thread safety: one thread, except Cancel.
//
// Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
// (2009), for the bytes that an all-reduce needs: 2 (n - 1) / n of the array each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice {

class Collective {
 public:
  enum class Op { kSum, kAverage, kMin, kMax };
  // How values travel: as f32, or rounded to bfloat16 in half the bytes.
  enum class Wire : uint32_t { kF32, kBf16 };
  // Names a started operation; tickets of one group grow.
  using Ticket = uint64_t;

  virtual ~Collective() = default;

  // Prepares for a group of `ranks` of which this is rank `self`, and returns what the others need
  // to reach it: opaque bytes, at most 64 KiB, for Join. Leaves the group before, if there is one.
  // `generation` is higher than in all earlier calls.
  virtual absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self,
                                             uint32_t ranks) = 0;
  // `peers[r]` is what rank r's Listen returned for the same generation. Returns when every rank
  // has called it. Bytes that no Listen of this engine made are INVALID_ARGUMENT.
  virtual absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                            uint32_t self) = 0;
  virtual void Leave() = 0;

  // Starts to replace `values`, [n], by the weighted mean over the ranks: sum of weight x values /
  // sum of weights, in f32: the products are summed in the order of the ranks, then divided. Zeros
  // when all weights are 0. The values of a rank with weight 0 are not read. A weight is 0, or a
  // normal positive f32 number; others are INVALID_ARGUMENT on all ranks. `values` belong to the
  // operation until Wait returns. Several may be under way. `step` is compared between the ranks.
  //
  // With kBf16, the values of every rank are rounded to bfloat16 (nearest, ties to even) before
  // they are weighted, and so is the mean. Products and sums are f32. All ranks get the same bits,
  // and the error is at most 2^-7 of the largest magnitude of a value. two_level rounds the mean of
  // each host as well: 2^-6.
  virtual Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight,
                              Wire wire) = 0;
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight) {
    return WeightedMean(step, values, weight, Wire::kF32);
  }
  // Waits for the operation, and so for all before it.
  virtual absl::Status Wait(Ticket ticket) = 0;

  // The rest waits until the operation is complete. `values`: [n].
  virtual absl::Status AllReduce(absl::Span<float> values, Op op) = 0;
  // `values`: [n] in; on return rank r has the reduced part r of PartOf(n, ranks, r) in its place;
  // the other parts are unspecified.
  virtual absl::Status ReduceScatter(absl::Span<float> values, Op op) = 0;
  // `values`: [n]; rank r brings part r of PartOf(n, ranks, r), and every rank gets all parts.
  virtual absl::Status AllGather(absl::Span<float> values) = 0;
  // Every rank gets the bytes of rank `root`. Like every operation of all ranks, it succeeds only
  // after every rank has begun it.
  virtual absl::Status Broadcast(absl::Span<uint8_t> bytes, uint32_t root) = 0;
  virtual absl::Status Barrier() = 0;

  // Makes every call of this rank, now or later, return CANCELLED soon, until the next Listen. The
  // other ranks see it leave. Safe from any thread.
  virtual void Cancel() = 0;

  // Names what a waiting call waits for, such as "rank 2 in the weighted mean of step 17", for
  // status; "" when none waits. Safe from any thread.
  virtual std::string WaitingFor() const = 0;

  // Names the engine: "shm", "gloo", "two_level" or "nccl"; "auto" before Join has chosen.
  virtual const char* name() const = 0;
};

// The elements [begin, end) of an array of n that belong to `rank` of `ranks`: parts of equal size
// in the order of the ranks, each a multiple of 16 elements (a cache line) but for the last ones.
struct ArrayPart {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};
ArrayPart PartOf(size_t n, uint32_t ranks, uint32_t rank);

// The rank that an error of a Collective is about, if it is known.
std::optional<uint32_t> RankAtFault(const absl::Status& status);

}  // namespace sluice

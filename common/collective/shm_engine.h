// Reduces and exchanges arrays between ranks of one host, over memory that they share.
//
// An array is cut into one part for each rank (PartOf). Chunk k of it is the k-th piece of every
// part. While chunk k is brought in, each rank reduces its piece of chunk k - 1 and takes the other
// pieces of chunk k - 2 out. A rank's own piece is read and written where it lies in the array. An
// all-reduce of n bytes among r ranks reads or writes (5 - 2 / r) n bytes in each rank:
//
//   bring    (r - 1) / r n read, as much written
//   reduce   n read (r pieces of n / r), 2 / r n written (for the others, and into the array)
//   take     (r - 1) / r n read, as much written
//
// A weighted mean in bfloat16 moves half of what is brought and taken.
//
// Small arrays are brought whole, and every rank reduces all of it: one hand-over instead of two.
//
// Thread safety: as CollectiveEngine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"
#include "common/collective/collective_engine.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_reduction.h"
#include "common/collective/shm_board.h"
#include "common/collective/shm_rendezvous.h"

namespace sluice {

class ShmEngine : public CollectiveEngine {
 public:
  explicit ShmEngine(const CollectiveOptions& options);
  ~ShmEngine() override;

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override;
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>& members) override;
  void Leave() override;
  void SetTimeout(absl::Duration timeout) override;
  absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) override;
  absl::Status Barrier(const OperationHeader& header) override;
  void Abandon(const absl::Status& why) override;
  void Cancel() override;
  std::string WaitingFor() const override;
  const char* name() const override { return "shm"; }

 private:
  struct Group;
  // The stages of an operation, each for one of its chunks, counted from 0.
  struct Stages {
    std::function<void(uint64_t)> bring, reduce;
    std::function<void(uint64_t)> take;
    // A chunk is taken once all ranks, or take_needs_rank alone, have filled it; with
    // take_needs_reduced, once they have reduced it.
    bool take_needs_reduced = false;
    std::optional<uint32_t> take_needs_rank;
  };

  std::shared_ptr<Group> CurrentGroup() const;
  absl::Status ReduceWhole(const OperationHeader& header, absl::Span<float> values);
  // Runs `chunks` chunks through the stages. `agreed` is called once all ranks have said what they
  // do, before the first is reduced or taken.
  absl::Status Run(const OperationHeader& header, uint64_t chunks, const Stages& stages,
                   absl::FunctionRef<void(const std::vector<OperationHeader>&)> agreed);
  absl::Status AwaitAgreement(const OperationHeader& header,
                              absl::FunctionRef<void(const std::vector<OperationHeader>&)> agreed);
  // The size of a piece of an array of n. All ranks come to the same.
  size_t PieceFloats(size_t n) const;
  // The piece of rank `rank`'s part that belongs to a chunk, as a range of an array of n.
  ArrayPart PieceOf(size_t n, uint32_t rank, uint64_t chunk) const;
  uint64_t ChunksOf(size_t n) const;
  // The place in shared memory of the piece that `from` brings for `of` in a chunk.
  void* Shared(uint64_t chunk, uint32_t from, uint32_t of) const;

  const CollectiveOptions options_;
  ShmRendezvous rendezvous_;
  uint32_t rank_ = 0;  // in the whole group
  uint32_t self_ = 0, ranks_ = 0;
  uint64_t done_ = 0;  // chunks of all operations before
  mutable Mutex mutex_;
  // Written under the lock by Join and Leave; read without it by their thread's operations.
  std::shared_ptr<Group> group_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

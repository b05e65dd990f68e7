// What the ranks of one host write into shared memory so that the others know how far they are, and
// the waits for it.
//
// A rank publishes three positions, each the number of chunks (over the life of the group) for
// which it has done something: filled (its values are in the slot), reduced (its piece is), taken
// (it reads the slot no more). A waiting rank spins, then yields, then sleeps on a futex in the
// memory.
//
// Invariants: a rank never reads back what it has published. The other ranks may write anything: a
// position is only compared, and an impossible one is an error.
//
// Thread safety: one thread, except Abandon, Cancel and waiting_for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/collective/group_fault.h"
#include "common/collective/operation_header.h"
#include "common/collective/shm_rendezvous.h"

namespace sluice {

class ShmBoard {
 public:
  enum Position { kFilled, kReduced, kTaken };

  // The group outlives the board. `names[r]` is how errors name rank r.
  ShmBoard(const ShmRendezvous::Group* group, uint32_t self, std::vector<uint32_t> names,
           const CollectiveOptions& options);

  // How long later waits take, in place of the timeout of the options, which errors still name.
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

  // `position` of this rank is now `chunks`.
  void Publish(Position position, uint64_t chunks);
  // Waits until `position` of `rank`, or of every rank without it, is at least `chunks`. `what` is
  // the present operation, for messages.
  absl::Status Await(Position position, uint64_t chunks, const OperationHeader& what,
                     std::optional<uint32_t> rank = std::nullopt);

  absl::Status CheckCancelled(const OperationHeader& what) const;

  void PublishHeader(uint64_t chunk, const OperationHeader& header);
  // Copies of all ranks' headers of the chunk. REQUIRES: every rank has filled it.
  std::vector<OperationHeader> Headers(uint64_t chunk) const;

  // Ends the group for all ranks. Safe from any thread.
  void Abandon(const GroupFault& fault);
  // Ends the group for all ranks, because this one leaves. Safe from any thread.
  void Cancel();
  // "rank 2 in the barrier"; "" when nothing waits. Safe from any thread.
  std::string waiting_for() const;

 private:
  struct Line;
  struct Control;

  bool Reached(Position position, uint64_t chunks, uint32_t rank, bool* possible) const;
  // The first rank that has not reached it; ranks_ when all have.
  uint32_t FirstMissing(Position position, uint64_t chunks, std::optional<uint32_t> rank,
                        bool* possible) const;
  absl::Status AwaitSlowly(Position position, uint64_t chunks, const OperationHeader& what,
                           std::optional<uint32_t> rank);
  bool HasEnded(uint32_t rank) const;
  // Tells all ranks of a fault, unless there is one already, and returns the one there is.
  GroupFault Tell(const GroupFault& fault);
  absl::Status Fail(GroupFault::Kind kind, uint32_t rank, const std::string& what);
  void Wake();

  const ShmRendezvous::Group* const group_;
  const uint32_t self_, ranks_;
  const std::vector<uint32_t> names_;
  const int spins_;
  const CollectiveOptions options_;
  absl::Duration timeout_;
  Control* const control_;
  Line* const lines_;  // [ranks]
  uint8_t* const headers_;
  uint64_t published_ = 0;  // the highest own position
  std::atomic<bool> cancelled_{false};
  mutable Mutex mutex_;
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

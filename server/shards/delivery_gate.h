// Decides which pushes a shard applies: each rank's frames once, in order, and only from its latest
// life.
//
// Thread safety: guarded by the owner's lock.
//
// A gate that was restored with its shard (Await) may lack frames that the rank believes delivered.
// It admits nothing until the rank has said what was acknowledged to it (Hear), once. It then
// continues after that frame; the frames in between are lost.
//
// Memory: a few numbers per rank.
//
// Invariants:
// - incarnation(rank) never falls.
// - last(rank) never falls within an incarnation.
// - Only Hear and Restore raise last(rank) by more than one.
#pragma once

#include <cstdint>
#include <vector>

#include "common/wire/train_position.h"

namespace sluice {

// Names the frame that a part belongs to.
struct FrameId {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  double weight = 0;       // n_w
  TrainPosition position;  // async and Geo
};

class DeliveryGate {
 public:
  enum class Verdict { kApply, kDuplicate, kOutOfOrder, kStaleIncarnation };

  // `by_step`: sequence numbers are global steps (sync), the same for every life of a rank;
  // otherwise a new incarnation starts again at 1.
  DeliveryGate(uint32_t ranks, bool by_step) : ranks_(ranks), by_step_(by_step) {}

  // Records the sequence when the verdict is kApply; a new incarnation fences the old whatever the
  // verdict.
  // REQUIRES: rank < ranks, sequence > 0.
  Verdict Admit(uint32_t rank, uint64_t incarnation, uint64_t sequence) {
    Rank& r = ranks_[rank];
    if (incarnation < r.incarnation) return Verdict::kStaleIncarnation;
    Fence(rank, incarnation);
    if (sequence <= r.last) return Verdict::kDuplicate;
    if (r.awaited || sequence != r.last + 1) return Verdict::kOutOfOrder;
    r.last = sequence;
    return Verdict::kApply;
  }

  // Returns whether Admit would return kApply.
  bool Applies(uint32_t rank, uint64_t incarnation, uint64_t sequence) const {
    const Rank& r = ranks_[rank];
    if (incarnation < r.incarnation) return false;
    const bool begins = incarnation > r.incarnation && !by_step_;
    return !r.awaited && sequence == (begins ? 0 : r.last) + 1;
  }

  // From now on frames of lives before `incarnation` are stale.
  void Fence(uint32_t rank, uint64_t incarnation) {
    Rank& r = ranks_[rank];
    if (incarnation <= r.incarnation) return;
    r.incarnation = incarnation;
    if (!by_step_) r.last = 0;
  }

  // Marks every rank's frames up to `step` as delivered.
  // REQUIRES: by_step, no frame yet.
  void StartAt(uint64_t step) {
    for (Rank& r : ranks_) r.last = step;
  }

  // The gate becomes equal to another, which awaits nobody.
  void Restore(uint32_t rank, uint64_t incarnation, uint64_t last) {
    ranks_[rank] = {incarnation, last, false};
  }
  // The gate holds the frames of this life of the rank up to `last`, and awaits the rank.
  // REQUIRES: no frame of the rank yet.
  void Await(uint32_t rank, uint64_t incarnation, uint64_t last) {
    ranks_[rank] = {incarnation, last, true};
  }
  // The rank knows that its frames up to `acknowledged` were acknowledged. Returns how many of them
  // are lost. Has no effect when the rank is not awaited, or this life of it is over.
  uint64_t Hear(uint32_t rank, uint64_t incarnation, uint64_t acknowledged) {
    Rank& r = ranks_[rank];
    if (!r.awaited || incarnation < r.incarnation) return 0;
    Fence(rank, incarnation);
    r.awaited = false;
    if (acknowledged <= r.last) return 0;
    const uint64_t lost = acknowledged - r.last;
    r.last = acknowledged;
    return lost;
  }

  // Memory of a gate, in bytes per rank.
  static constexpr uint64_t bytes_per_rank() { return sizeof(Rank); }

  bool awaits(uint32_t rank) const { return ranks_[rank].awaited; }
  uint64_t last(uint32_t rank) const { return ranks_[rank].last; }
  uint64_t incarnation(uint32_t rank) const { return ranks_[rank].incarnation; }

 private:
  struct Rank {
    uint64_t incarnation = 0;
    uint64_t last = 0;
    bool awaited = false;
  };
  std::vector<Rank> ranks_;
  bool by_step_;
};

}  // namespace sluice

// One reduction of an array that travels in pieces, over the connections of GlooPeers.
//
// Each rank reduces one part of the array (PartOf), piece by piece. While it reduces a piece, the
// next ones travel: it has room for a few pieces of each other rank. It sends each result to all
// ranks, unless every rank keeps its own part only.
//
// All ranks take the same turns. In a turn with distance d, rank r sends a piece to rank r + d,
// and gets one from rank r - d, which ends the turn. So each link carries about one transfer at a
// time. If all ranks sent to all at once, TCP would share the links unevenly, and some would be
// idle while the last transfers end: four hosts would need 1.2 to 1.3 times as long.
//
// Invariants: a rank sends its piece of a turn before it waits for the piece that it gets in it. So
// no two ranks wait for each other.
//
// Source: the pairwise exchange of Thakur et al., "Optimization of Collective Communication
// Operations in MPICH" (2005).
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/collective/collective_engine.h"
#include "common/collective/gloo_peers.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_reduction.h"

namespace sluice {

class GlooReduction {
 public:
  // Kept between operations, because fresh pages are slow.
  struct Scratch {
    std::vector<uint8_t> brought;
    std::vector<uint16_t> halves;  // the array in bfloat16
  };
  // `headers`: those of all ranks, which agree. All arguments outlive the reduction.
  GlooReduction(GlooPeers* peers, absl::Span<const OperationHeader> headers,
                absl::Span<float> values, Scratch* scratch);

  // To be called once. Values hold the result afterwards: all, or this rank's part.
  absl::Status Run();

 private:
  struct Turn {
    uint64_t slot = GlooPeers::kBrought;
    uint64_t k = 0;         // the number of the pieces
    uint32_t distance = 0;  // 0: none
  };

  // Each starts to receive: the pieces with number k that others bring, and all results.
  absl::Status ExpectBrought(uint64_t k);
  absl::Status ExpectResults();
  // Takes a turn with every other rank. The last one of two ranks may still be under way after it.
  absl::Status TakeTurns(uint64_t slot, uint64_t k);
  absl::Status SendIn(const Turn& turn);
  // Awaits what comes in the turn that is under way.
  absl::Status FinishTurn();
  // Reduces this rank's own pieces up to number k, which the others have brought.
  absl::Status ReduceThrough(uint64_t k);
  absl::Status ReduceOwn(uint64_t k);
  // Awaits the end of what was sent.
  absl::Status End();

  // The piece of the rank's part with number k; empty when there is none.
  ArrayPart PieceOf(uint32_t rank, uint64_t k) const;
  // The first element, in brought_, of the room for piece k of the rank.
  size_t RoomOf(uint32_t rank, uint64_t k) const;
  // Nothing needs no call.
  absl::Status Send(uint32_t rank, uint64_t slot, ArrayPart piece);
  absl::Status Receive(GlooPeers::Region* to, uint32_t rank, uint64_t slot, ArrayPart piece);

  GlooPeers* const peers_;
  const OperationHeader& header_;  // of this rank
  const absl::Span<float> values_;
  const size_t width_;     // bytes of an element that travels
  const bool all_;         // every rank gets the results
  const size_t piece_;     // elements of a whole piece
  const uint64_t pieces_;  // of the largest part
  RankReduction reduction_;
  uint8_t* wire_ = nullptr;     // the array as it travels: itself, or in bfloat16
  uint8_t* brought_ = nullptr;  // what the others have brought, kPiecesAhead pieces of each rank
  std::unique_ptr<GlooPeers::Region> array_region_, brought_region_;
  std::vector<int> sent_;  // by rank: sends to await
  Turn turn_;              // under way
  uint64_t reduced_ = 0;   // own pieces
  std::vector<const void*> inputs_;
};

}  // namespace sluice

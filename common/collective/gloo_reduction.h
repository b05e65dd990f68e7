// One reduction of an array that travels in pieces, over the connections of GlooPeers.
//
// Each rank reduces one part of the array (PartOf), piece by piece. While it reduces a piece, the
// next ones travel: it has room for a few pieces of each other rank. It sends each result to all
// ranks at once, unless every rank keeps its own part only.
//
// Invariants: values of a piece have left for the rank that reduces it before this rank waits for
// pieces of the same number. So no two ranks wait for each other.
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
  // `headers`: of the ranks, which agree. All that is given outlives the reduction.
  GlooReduction(GlooPeers* peers, absl::Span<const OperationHeader> headers,
                absl::Span<float> values, Scratch* scratch);

  // To be called once. Values hold the result afterwards: all, or this rank's part.
  absl::Status Run();

 private:
  // Each starts to receive: the pieces with number k that others bring, and all results.
  absl::Status ExpectBrought(uint64_t k);
  absl::Status ExpectResults();
  // Sends this rank's values of the pieces with number k to the ranks that reduce them.
  absl::Status Bring(uint64_t k);
  // Awaits the values of this rank's own piece with number k, reduces it, and sends the result.
  absl::Status ReduceOwn(uint64_t k);
  // Awaits the results, and the end of what was sent.
  absl::Status End();
  absl::Status AwaitResultsOf(uint32_t rank);

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
  std::vector<const void*> inputs_;
};

}  // namespace sluice

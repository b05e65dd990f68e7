// Where things lie in the memory that the ranks of one host share.
//
// Format:
//   board     positions and headers (ShmBoard), whole pages
//   slot 0    for each rank p, for each rank q: a piece of piece_bytes, which p writes. The piece
//             of p and q with p != q is what p brings for q to reduce; that of q and q is what q
//             has reduced.
//   slot 1..  the same
//
// An array goes through the slots in chunks: chunk k of all lies in slot k % slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

struct ShmLayout {
  static constexpr uint32_t kMaxRanks = 256;
  static constexpr uint32_t kSlots = 4;

  uint32_t ranks = 0;
  uint32_t slots = kSlots;
  size_t piece_bytes = 0;  // a multiple of 4096

  // Pieces such that all ranks' together make about `chunk_bytes`.
  static ShmLayout ForChunks(size_t chunk_bytes, uint32_t ranks);
  // INVALID_ARGUMENT for figures from outside that are not possible.
  absl::Status Check() const;

  size_t piece_floats() const { return piece_bytes / sizeof(float); }
  size_t chunk_bytes() const { return piece_bytes * ranks; }
  size_t board_bytes() const;
  size_t total_bytes() const { return board_bytes() + slots * ranks * chunk_bytes(); }
  size_t PieceOffset(uint64_t chunk, uint32_t from, uint32_t of) const {
    return board_bytes() + ((chunk % slots * ranks + from) * ranks + of) * piece_bytes;
  }
};

}  // namespace sluice

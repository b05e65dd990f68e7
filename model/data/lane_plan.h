// Sync: the order of an epoch's examples, and which rank serves which of them.
//
// The pieces of the training data are put in an order of the epoch's seed and dealt to L lanes. The
// global batch t of B takes from lane l the lines [t s, (t + 1) s) with s = floor(B (l + 1) / L) -
// floor(B l / L); rank r of W serves the lanes [L r / W, L (r + 1) / W). Nothing else depends on W.
//
// Lines are those that the index has counted: examples and malformed lines. A piece with m examples
// in c lines gives its lines [x, y) the examples [min(x, m), min(y, m)), so that malformed lines
// move no other line.
//
// Invariants: every line of every piece is in exactly one part of one lane; lane l has floor(N S(l
// + 1) / B) - floor(N S(l) / B) of the N lines, with S(l) = floor(B l / L), so that all global
// batches but the last are full and the last one has the rest. A piece is cut only where a lane is
// full: at most L - 1 pieces an epoch, of which about W - 1 are needed by two ranks. Pieces come in
// the order in which the ranks need them, and those of a compressed file in its order, so that a
// rank reads each file from front to back.
//
// Thread safety: plain data, pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// The lines that start in [begin, end) of the text of a file.
struct CountedPiece {
  uint32_t file = 0;  // in the sorted list of training files
  uint64_t begin = 0, end = 0;
  uint64_t lines = 0;
};

// The end of the last piece of a compressed file, whose text nobody has measured.
inline constexpr uint64_t kTextEnd = UINT64_MAX;

// Bytes of text in a piece, for data of so many bytes: 16 pieces a lane, at least 64 KiB and at
// most 512 KiB; beyond 128 GiB larger ones, up to 16 MiB, to keep the table of pieces small.
uint64_t LanePieceBytes(uint64_t data_bytes, uint32_t lanes);

// Global batches of an epoch: the short one counts unless it is dropped. REQUIRES: global_batch >
// 0.
uint64_t GlobalSteps(uint64_t lines, uint64_t global_batch, bool drop_last);

struct LaneOptions {
  uint64_t seed = 0;          // of the epoch
  bool shuffle = true;        // false: pieces and lines keep the order of the files
  uint32_t lanes = 1;         // L
  uint64_t window = 1;        // lines
  uint64_t global_batch = 1;  // B
};

// What of a piece a lane has.
struct LanePart {
  uint32_t piece = 0;
  uint32_t from = 0, to = 0;  // lines of the piece
};

// A lane and its windows, inside which it permutes its lines. The first window is shorter in lower
// lanes, so that the lanes are read in turn instead of all at once.
struct LaneSequence {
  uint32_t lane = 0;
  uint64_t share = 0;  // s: lines that a full global batch takes
  uint64_t lines = 0;
  uint64_t first_window = 0;  // its end
  uint64_t window = 1;
  std::vector<LanePart> parts;  // of `lines` lines in all

  uint64_t WindowEnd(uint64_t w) const;
};

struct LanePlan {
  std::vector<LaneSequence> lanes;  // of the rank; none without lines
  uint64_t full_steps = 0;          // floor(N / B)
  // Position of the rank's first line in a full global batch, and in the last one.
  uint64_t first_position = 0, last_first_position = 0;
};

// The lanes that rank `rank` of `ranks` serves. `pieces` are sorted by file and begin and cover
// each file. REQUIRES: lanes, window, global_batch and ranks > 0.
LanePlan PlanLanes(const std::vector<CountedPiece>& pieces, const LaneOptions& options,
                   uint32_t rank, uint32_t ranks);

}  // namespace sluice

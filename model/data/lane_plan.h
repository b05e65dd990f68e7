// Plans, for sync jobs, the order of an epoch's examples and which rank serves which of them.
//
// The pieces of the training data are ordered by the epoch's seed and dealt to L lanes. The global
// batch t of B lines takes the lines [t s, (t + 1) s) from lane l, where
//   s = floor(B (l + 1) / L) - floor(B l / L).
// Rank r of W serves the lanes [L r / W, L (r + 1) / W).
// Nothing else depends on W.
//
// Lines are those that INDEX has counted: examples and malformed lines. In a piece with m examples
// in c lines, the lines [x, y) hold the examples [min(x, m), min(y, m)), so malformed lines do not
// shift other lines.
//
// Invariants: every line of every piece is in exactly one part of one lane. With
// S(l) = floor(B l / L), lane l has floor(N S(l + 1) / B) - floor(N S(l) / B) of the N lines. So
// all global batches but the last are full, and the last one has the rest. A piece is cut only
// where a lane is full. An epoch cuts at most L - 1 pieces, and about W - 1 of them are read by two
// ranks. Pieces come in the order in which the ranks need them. The pieces of a compressed file
// come in file order, so that a rank reads each file from front to back; and so do those of a unit
// of rows.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// The lines that start in [begin, end) of the text of a file; of a format of rows, those rows.
struct CountedPiece {
  uint32_t file = 0;  // in the sorted list of training files
  uint64_t begin = 0, end = 0;
  uint64_t lines = 0;
  // Formats of rows: comes behind the piece before it, as both are of one unit (row_groups.h).
  bool goes_on = false;
};

// The end of the last piece of a compressed file, whose text size is not known.
inline constexpr uint64_t kTextEnd = UINT64_MAX;

// Bytes of text in a piece, for data of `data_bytes` bytes: 16 pieces per lane, of at least 64 KiB
// and at most 512 KiB. Beyond 128 GiB pieces grow up to 16 MiB, to keep the table of pieces small.
uint64_t LanePieceBytes(uint64_t data_bytes, uint32_t lanes);

// The number of global batches in an epoch. A last batch that is not full counts unless drop_last.
// REQUIRES: global_batch > 0.
uint64_t GlobalSteps(uint64_t lines, uint64_t global_batch, bool drop_last);

struct LaneOptions {
  uint64_t seed = 0;          // of the epoch
  bool shuffle = true;        // false: pieces and lines keep file order
  uint32_t lanes = 1;         // L
  uint64_t window = 1;        // lines
  uint64_t global_batch = 1;  // B
};

// The part of a piece that a lane has.
struct LanePart {
  uint32_t piece = 0;
  uint32_t from = 0, to = 0;  // lines of the piece
};

// A lane and its windows, within which its lines are permuted. Lower lanes have a shorter first
// window, so that the lanes are read in turn instead of all at once.
struct LaneSequence {
  uint32_t lane = 0;
  uint64_t share = 0;  // s: lines that a full global batch takes
  uint64_t lines = 0;
  uint64_t first_window = 0;  // lines in the first window
  uint64_t window = 1;
  std::vector<LanePart> parts;  // `lines` lines in all

  uint64_t WindowEnd(uint64_t w) const;
};

struct LanePlan {
  std::vector<LaneSequence> lanes;  // of the rank, without empty ones
  uint64_t full_steps = 0;          // floor(N / B)
  // Positions of the rank's first line in a full global batch, and in a last one that is not full.
  uint64_t first_position = 0, last_first_position = 0;
};

// The lanes that rank `rank` of `ranks` serves. `pieces` are sorted by file and begin and cover
// each file.
// REQUIRES: lanes, window, global_batch and ranks > 0.
LanePlan PlanLanes(const std::vector<CountedPiece>& pieces, const LaneOptions& options,
                   uint32_t rank, uint32_t ranks);

}  // namespace sluice

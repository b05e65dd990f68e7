// Sync: one lane of an epoch, read window by window.
//
// Memory: the window in use and at most one piece beyond it; windows before it as long as slices of
// them are kept.
//
// Thread safety: one thread; slices may be used on any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/data/lane_plan.h"
#include "model/data/permutation.h"
#include "model/features/batch.h"
#include "worker/piece_reader.h"

namespace sluice {

// Consecutive lines of a lane, permuted. Immutable.
class LaneWindow {
 public:
  // Examples [first, end) of a piece, in whose identities `id_seed` takes part.
  struct Part {
    Examples examples;
    uint64_t first = 0, end = 0;
    uint64_t id_seed = 0;
  };
  // Of `lines` lines, which gave the examples of `parts`. Without `shuffle` they keep their order.
  LaneWindow(uint64_t lines, std::vector<Part> parts, uint64_t seed, bool shuffle);

  // Place i, 0 <= i < lines, holds an example; else a line that is malformed.
  bool Has(uint64_t i) const { return LineAt(i) < examples_; }
  // Appends the example at place i, when it holds one.
  void AppendTo(uint64_t i, Batch* batch) const;

 private:
  uint64_t LineAt(uint64_t i) const { return shuffle_ ? order_(i) : i; }

  const std::vector<Part> parts_;  // none empty
  std::vector<uint64_t> ends_;     // examples of all parts up to each
  uint64_t examples_ = 0;
  const Permutation order_;
  const bool shuffle_;
};

// Places [begin, end) of a window.
struct LaneSlice {
  std::shared_ptr<const LaneWindow> window;
  uint64_t begin = 0, end = 0;
};

class Lane {
 public:
  // All outlive it. `pieces`: of the table that `reader` reads.
  Lane(const LaneSequence& sequence, const LaneOptions& options,
       const std::vector<CountedPiece>& pieces, PieceReader* reader)
      : sequence_(sequence), options_(options), pieces_(pieces), reader_(reader) {}

  // Appends the lines behind those taken before, up to line `to`, to *slices; reads what is needed.
  // REQUIRES: to <= sequence.lines.
  absl::Status Take(uint64_t to, std::vector<LaneSlice>* slices);
  // Of a full global batch.
  uint64_t share() const { return sequence_.share; }
  uint64_t lines() const { return sequence_.lines; }

 private:
  absl::Status ReadWindow();

  const LaneSequence& sequence_;
  const LaneOptions& options_;
  const std::vector<CountedPiece>& pieces_;
  PieceReader* const reader_;

  uint64_t taken_ = 0;  // lines
  std::shared_ptr<const LaneWindow> window_;
  uint64_t window_number_ = 0;                  // of the next one
  uint64_t window_begin_ = 0, window_end_ = 0;  // lines of window_
  // The part that the next window begins in or with.
  size_t part_ = 0;
  uint64_t part_begin_ = 0;  // its first line in the lane
  Examples part_examples_;   // of its piece; no owner: not read
};

}  // namespace sluice

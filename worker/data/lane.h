// Sync: one lane of an epoch, read window by window.
//
// Memory: the window in use and at most one piece beyond it. Earlier windows stay while slices of
// them exist.
//
// Thread safety: one thread. Slices may be used on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/data/lane_plan.h"
#include "model/data/permutation.h"
#include "model/features/batch.h"
#include "worker/data/piece_reader.h"

namespace sluice {

// Consecutive lines of a lane, permuted. Immutable.
class LaneWindow {
 public:
  // Examples [first, end) of a piece. `id_seed` enters into their identities.
  struct Part {
    Examples examples;
    uint64_t first = 0, end = 0;
    uint64_t id_seed = 0;
  };
  // A window of `lines` lines, from which the examples of `parts` were parsed. Without `shuffle`
  // they keep their order.
  LaneWindow(uint64_t lines, std::vector<Part> parts, uint64_t seed, bool shuffle);

  // Whether place i, 0 <= i < lines, holds an example; otherwise its line is malformed.
  bool Has(uint64_t i) const { return LineAt(i) < examples_; }
  // Appends the example at place i, if it holds one. Statuses: Batch::Append.
  absl::Status AppendTo(uint64_t i, Batch* batch) const;

 private:
  uint64_t LineAt(uint64_t i) const { return shuffle_ ? order_(i) : i; }

  const std::vector<Part> parts_;  // none empty
  std::vector<uint64_t> ends_;     // by part: examples up to its end
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
  // All arguments outlive the lane. `pieces` belong to the table that `reader` reads.
  Lane(const LaneSequence& sequence, const LaneOptions& options,
       const std::vector<CountedPiece>& pieces, PieceReader* reader)
      : sequence_(sequence), options_(options), pieces_(pieces), reader_(reader) {}

  // Leaves out the lines before `line`, and reads nothing. Windows keep their places and orders.
  // REQUIRES: line <= lines(); nothing is taken yet.
  void SkipTo(uint64_t line);
  // Reads the window of the next line, if there is such a line and the window is not read yet.
  absl::Status ReadAhead();
  // The first line of the window that is read next.
  uint64_t next_window() const { return window_end_; }
  // The part that the window before that one has the first lines of; null: none, or no line is
  // left.
  const LanePart* split_part() const;
  // Reads that part.
  absl::Status ReadSplitPart();
  // Appends the lines after those already taken, up to line `to`, to *slices. Reads windows as
  // needed.
  // REQUIRES: to <= sequence.lines.
  absl::Status Take(uint64_t to, std::vector<LaneSlice>* slices);
  // Lines of this lane in a full global batch.
  uint64_t share() const { return sequence_.share; }
  uint64_t lines() const { return sequence_.lines; }

 private:
  absl::Status ReadWindow();
  // Reads the piece of the part at part_, unless it is read.
  absl::Status ReadPart();
  // The number of the epoch's steps that take all windows with lines before `line`.
  uint64_t StepsPast(uint64_t line) const;

  const LaneSequence& sequence_;
  const LaneOptions& options_;
  const std::vector<CountedPiece>& pieces_;
  PieceReader* const reader_;

  uint64_t taken_ = 0;  // lines
  std::shared_ptr<const LaneWindow> window_;
  uint64_t window_number_ = 0;                  // of the next window
  uint64_t window_begin_ = 0, window_end_ = 0;  // lines of window_; the next one begins at its end
  size_t part_ = 0;          // the part that holds the first line of the next window
  uint64_t part_begin_ = 0;  // first line of that part in the lane
  Examples part_examples_;   // of that part's piece; no owner: not read yet
};

}  // namespace sluice

#include "worker/data/lane.h"

#include <algorithm>
#include <utility>

#include "common/base/hash.h"
#include "common/base/status_macros.h"

namespace sluice {

LaneWindow::LaneWindow(uint64_t lines, std::vector<Part> parts, uint64_t seed, bool shuffle)
    : parts_(std::move(parts)), order_(lines, seed), shuffle_(shuffle) {
  ends_.reserve(parts_.size());
  for (const Part& part : parts_) ends_.push_back(examples_ += part.end - part.first);
}

absl::Status LaneWindow::AppendTo(uint64_t i, Batch* batch) const {
  // Examples take the first lines of the window; the lines past them are the malformed ones.
  const uint64_t line = LineAt(i);
  if (line >= examples_) return absl::OkStatus();
  const size_t p = std::upper_bound(ends_.begin(), ends_.end(), line) - ends_.begin();
  const Part& part = parts_[p];
  // The identity of an example comes from its piece and its place there, so that dropout is the
  // same for any number of ranks and lanes.
  const uint64_t example = part.end - (ends_[p] - line);
  return batch->Append(part.examples.view, example, CombineHash(part.id_seed, example));
}

void Lane::SkipTo(uint64_t line) {
  // By arithmetic alone: nothing that the resumed epoch does not need is read.
  taken_ = line;
  while (window_end_ < lines() && sequence_.WindowEnd(window_number_) <= line)
    window_end_ = sequence_.WindowEnd(window_number_++);
  for (; part_ < sequence_.parts.size(); ++part_) {
    const LanePart& part = sequence_.parts[part_];
    if (part_begin_ + (part.to - part.from) > window_end_) break;
    part_begin_ += part.to - part.from;
  }
}

uint64_t Lane::StepsPast(uint64_t line) const {
  uint64_t w = window_number_;
  while (sequence_.WindowEnd(w) < line) ++w;
  return (sequence_.WindowEnd(w) + share() - 1) / share();
}

const LanePart* Lane::split_part() const {
  return taken_ < lines() && part_begin_ < window_end_ ? &sequence_.parts[part_] : nullptr;
}

absl::Status Lane::ReadSplitPart() {
  return split_part() == nullptr ? absl::OkStatus() : ReadPart();
}

absl::Status Lane::ReadPart() {
  if (part_examples_.owner != nullptr) return absl::OkStatus();
  const LanePart& part = sequence_.parts[part_];
  // A resumed epoch reads the part again unless it begins with a window after the part.
  const uint64_t done_after = StepsPast(part_begin_ + (part.to - part.from));
  SLUICE_ASSIGN_OR_RETURN(part_examples_, reader_->Read(part, done_after));
  return absl::OkStatus();
}

absl::Status Lane::ReadAhead() {
  return taken_ < lines() && taken_ >= window_end_ ? ReadWindow() : absl::OkStatus();
}

absl::Status Lane::ReadWindow() {
  window_ = nullptr;  // released first, so that its memory can serve the next window
  window_begin_ = window_end_;
  window_end_ = sequence_.WindowEnd(window_number_);
  std::vector<LaneWindow::Part> parts;
  for (uint64_t at = window_begin_; at < window_end_;) {
    const LanePart& part = sequence_.parts[part_];
    SLUICE_RETURN_IF_ERROR(ReadPart());
    const uint64_t part_end = part_begin_ + (part.to - part.from);
    const uint64_t end = std::min(part_end, window_end_);
    const uint64_t n = part_examples_.view.n;
    // A piece with malformed lines has fewer examples than lines. The examples take the first
    // places, and the last ones stay empty.
    const uint64_t first = std::min<uint64_t>(part.from + (at - part_begin_), n);
    const uint64_t last = std::min<uint64_t>(part.from + (end - part_begin_), n);
    const CountedPiece& piece = pieces_[part.piece];
    if (first < last)
      parts.push_back({part_examples_, first, last, CombineHash(piece.file, piece.begin)});
    at = end;
    // The next window continues in this part, so its examples stay.
    if (end < part_end) break;
    part_examples_ = Examples();
    part_begin_ = part_end;
    ++part_;
  }
  window_ = std::make_shared<LaneWindow>(
      window_end_ - window_begin_, std::move(parts),
      CombineHash(CombineHash(options_.seed, sequence_.lane), window_number_), options_.shuffle);
  ++window_number_;
  return absl::OkStatus();
}

absl::Status Lane::Take(uint64_t to, std::vector<LaneSlice>* slices) {
  while (taken_ < to) {
    SLUICE_RETURN_IF_ERROR(ReadAhead());
    const uint64_t end = std::min(to, window_end_);
    slices->push_back({window_, taken_ - window_begin_, end - window_begin_});
    taken_ = end;
  }
  return absl::OkStatus();
}

}  // namespace sluice

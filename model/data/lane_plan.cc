#include "model/data/lane_plan.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "model/data/permutation.h"

namespace sluice {
namespace {

constexpr uint64_t kLeastPieceBytes = 64 << 10, kUsualPieceBytes = 512 << 10,
                   kMostPieceBytes = 16 << 20;
constexpr uint64_t kPiecesOfALane = 16;
constexpr uint64_t kMostPieces = 1 << 18;  // before pieces grow beyond the usual size

// floor(a b / c) for any a, b < 2^64.
uint64_t MulDiv(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b / c);
}

// The indices of the pieces in the order in which they are dealt. The pieces of a compressed file,
// and of a unit of rows, stay together, in their order.
std::vector<uint32_t> OrderOf(const std::vector<CountedPiece>& pieces, const LaneOptions& options) {
  std::vector<uint32_t> order;
  order.reserve(pieces.size());
  if (!options.shuffle) {
    for (uint32_t p = 0; p < pieces.size(); ++p) order.push_back(p);
    return order;
  }
  std::vector<uint32_t> units;  // the first piece of each
  for (uint32_t p = 0, end = 0; p < pieces.size(); p = end) {
    end = p + 1;
    while (end < pieces.size() && pieces[end].file == pieces[p].file) ++end;
    // Only compressed files have a last piece without an end. Their pieces stay together: reading
    // them in another order would decompress the file again and again.
    const bool whole = pieces[end - 1].end == kTextEnd;
    units.push_back(p);
    for (uint32_t q = p + 1; q < end && !whole; ++q) {
      if (!pieces[q].goes_on) units.push_back(q);
    }
  }
  units.push_back(pieces.size());
  const Permutation permuted(units.size() - 1, options.seed);
  for (uint64_t u = 0; u < permuted.size(); ++u) {
    const uint64_t unit = permuted(u);
    for (uint32_t p = units[unit]; p < units[unit + 1]; ++p) order.push_back(p);
  }
  return order;
}

// Deals the pieces. The lane that needs lines next gets the next pieces, until its window is full.
class Dealer {
 public:
  Dealer(const std::vector<CountedPiece>& pieces, const LaneOptions& options)
      : pieces_(pieces), order_(OrderOf(pieces, options)) {}

  void Deal(std::vector<LaneSequence>* lanes, uint32_t first_kept, uint32_t end_kept) {
    // The step in which a lane needs lines, the lane, and the end of the window that it then needs.
    using Need = std::tuple<uint64_t, uint32_t, uint64_t>;
    std::priority_queue<Need, std::vector<Need>, std::greater<Need>> needs;
    std::vector<uint64_t> dealt(lanes->size(), 0);
    for (const LaneSequence& lane : *lanes) {
      if (lane.lines > 0) needs.emplace(0, lane.lane, lane.first_window);
    }
    while (!needs.empty()) {
      const auto [step, l, window_end] = needs.top();
      needs.pop();
      LaneSequence& lane = (*lanes)[l];
      while (dealt[l] < std::min(window_end, lane.lines)) {
        const LanePart part = Take(lane.lines - dealt[l]);
        dealt[l] += part.to - part.from;
        // All lanes are dealt on every rank, because a piece goes to the lane that needs it first.
        // Only the rank's own parts are kept.
        if (l >= first_kept && l < end_kept) lane.parts.push_back(part);
      }
      if (window_end < lane.lines)
        // The step in which the lane has used up this window.
        needs.emplace(window_end / lane.share, l, window_end + lane.window);
    }
  }

 private:
  // Takes the rest of the next piece, but at most `most` lines.
  LanePart Take(uint64_t most) {
    while (pieces_[order_[next_]].lines == taken_) {
      ++next_;
      taken_ = 0;
    }
    LanePart part;
    part.piece = order_[next_];
    part.from = static_cast<uint32_t>(taken_);
    taken_ += std::min(most, pieces_[part.piece].lines - taken_);
    part.to = static_cast<uint32_t>(taken_);
    return part;
  }

  const std::vector<CountedPiece>& pieces_;
  const std::vector<uint32_t> order_;
  size_t next_ = 0;     // index in order_
  uint64_t taken_ = 0;  // lines of that piece
};

}  // namespace

uint64_t LanePieceBytes(uint64_t data_bytes, uint32_t lanes) {
  const uint64_t usual =
      std::clamp(data_bytes / (kPiecesOfALane * lanes), kLeastPieceBytes, kUsualPieceBytes);
  // Beyond that the table of pieces, which every rank gets, would grow with the data.
  return std::max(usual, std::min(data_bytes / kMostPieces, kMostPieceBytes));
}

uint64_t GlobalSteps(uint64_t lines, uint64_t global_batch, bool drop_last) {
  const bool short_one = lines % global_batch != 0 && !drop_last;
  return lines / global_batch + (short_one ? 1 : 0);
}

uint64_t LaneSequence::WindowEnd(uint64_t w) const {
  return std::min(first_window + w * window, lines);
}

LanePlan PlanLanes(const std::vector<CountedPiece>& pieces, const LaneOptions& options,
                   uint32_t rank, uint32_t ranks) {
  uint64_t lines = 0;
  for (const CountedPiece& piece : pieces) lines += piece.lines;
  const uint64_t batch = options.global_batch, count = options.lanes;
  const auto start = [&](uint64_t l) { return MulDiv(batch, l, count); };
  const auto lines_before = [&](uint64_t l) { return MulDiv(lines, start(l), batch); };
  std::vector<LaneSequence> lanes(count);
  for (uint64_t l = 0; l < count; ++l) {
    LaneSequence& lane = lanes[l];
    lane.lane = static_cast<uint32_t>(l);
    lane.share = start(l + 1) - start(l);
    lane.lines = lines_before(l + 1) - lines_before(l);
    lane.window = options.window;
    // A lane that fits in one window is permuted as a whole.
    // First windows differ in length, so that later ones end at different steps and not all lanes
    // read at the same time.
    lane.first_window = lane.lines <= options.window
                            ? lane.lines
                            : std::max<uint64_t>(MulDiv(options.window, l + 1, count), 1);
  }
  const uint64_t first = count * rank / ranks, end = count * (rank + 1) / ranks;
  Dealer(pieces, options).Deal(&lanes, first, end);
  LanePlan plan;
  plan.full_steps = lines / batch;
  plan.first_position = start(first);
  plan.last_first_position = lines_before(first) - plan.full_steps * start(first);
  for (uint64_t l = first; l < end; ++l) {
    if (lanes[l].lines > 0) plan.lanes.push_back(std::move(lanes[l]));
  }
  return plan;
}

}  // namespace sluice

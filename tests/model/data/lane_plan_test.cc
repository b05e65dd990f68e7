#include "model/data/lane_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace sluice {
namespace {

using LanePlanLines = std::vector<std::pair<uint32_t, uint32_t>>;  // piece, line

struct Case {
  std::vector<CountedPiece> pieces;
  LaneOptions options;
};

// Files with several pieces each. When asked for, every second file is compressed.
std::vector<CountedPiece> Pieces(std::mt19937_64* random, int files, int most_pieces,
                                 int most_lines, bool compressed) {
  std::vector<CountedPiece> pieces;
  for (int f = 0; f < files; ++f) {
    const uint64_t n = (*random)() % (most_pieces + 1);
    for (uint64_t i = 0; i < n; ++i) {
      const bool last = i + 1 == n && compressed && f % 2 == 1;
      pieces.push_back({static_cast<uint32_t>(f), i * 100, last ? kTextEnd : (i + 1) * 100,
                        (*random)() % (most_lines + 1)});
    }
  }
  return pieces;
}

Case RandomCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](uint64_t n) { return 1 + random() % n; };
  Case c;
  c.pieces = Pieces(&random, up_to(5), up_to(40), up_to(60), random() % 2 == 0);
  c.options.seed = seed;
  c.options.shuffle = random() % 4 != 0;
  c.options.lanes = up_to(70);
  c.options.window = up_to(100);
  c.options.global_batch = up_to(150);
  return c;
}

uint64_t LinesOf(const std::vector<CountedPiece>& pieces) {
  uint64_t lines = 0;
  for (const CountedPiece& piece : pieces) lines += piece.lines;
  return lines;
}

LanePlanLines LinesOf(const LaneSequence& lane) {
  LanePlanLines lines;
  for (const LanePart& part : lane.parts) {
    for (uint32_t i = part.from; i < part.to; ++i) lines.emplace_back(part.piece, i);
  }
  return lines;
}

// The pieces that a rank touches, in the order in which it first needs a line of each window.
std::vector<uint32_t> ReadOrder(const LanePlan& plan) {
  std::vector<std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>> reads;
  for (const LaneSequence& lane : plan.lanes) {
    uint64_t begin = 0, at = 0;
    size_t part = 0;
    for (uint64_t w = 0; begin < lane.lines; ++w) {
      const uint64_t end = lane.WindowEnd(w);
      for (; at < end; ++part) {
        reads.emplace_back(begin / lane.share, lane.lane, w, lane.parts[part].piece);
        at += lane.parts[part].to - lane.parts[part].from;
      }
      begin = end;
    }
  }
  std::stable_sort(reads.begin(), reads.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)) <
           std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b));
  });
  std::vector<uint32_t> pieces;
  for (const auto& read : reads) pieces.push_back(std::get<3>(read));
  return pieces;
}

TEST(LanePlanTest, EveryLineIsInOneLaneAndOnlyTheLastGlobalBatchIsShort) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = RandomCase(seed);
    const LanePlan plan = PlanLanes(c.pieces, c.options, 0, 1);
    const uint64_t n = LinesOf(c.pieces), batch = c.options.global_batch;
    std::set<std::pair<uint32_t, uint32_t>> seen;
    uint64_t in_full_batch = 0, rest = 0;
    for (const LaneSequence& lane : plan.lanes) {
      const LanePlanLines lines = LinesOf(lane);
      EXPECT_EQ(lines.size(), lane.lines);
      for (const auto& line : lines) EXPECT_TRUE(seen.insert(line).second);
      in_full_batch += lane.share;
      ASSERT_GE(lane.lines, plan.full_steps * lane.share);
      EXPECT_LE(lane.lines - plan.full_steps * lane.share, lane.share);
      rest += lane.lines - plan.full_steps * lane.share;
    }
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(plan.full_steps, n / batch);
    EXPECT_EQ(rest, n % batch);
    if (plan.full_steps > 0) {
      EXPECT_EQ(in_full_batch, batch);
    }
  }
}

TEST(LanePlanTest, RanksServeContiguousRunsOfOneWorkersLanes) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = RandomCase(seed);
    const LanePlan one = PlanLanes(c.pieces, c.options, 0, 1);
    for (const uint32_t ranks : {1u, 2u, 3u, 7u, c.options.lanes}) {
      if (ranks > c.options.lanes) continue;
      size_t l = 0;
      uint64_t position = 0, last_position = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const LanePlan plan = PlanLanes(c.pieces, c.options, rank, ranks);
        if (plan.full_steps > 0) {
          EXPECT_EQ(plan.first_position, position);
        }
        EXPECT_EQ(plan.last_first_position, last_position);
        for (const LaneSequence& lane : plan.lanes) {
          ASSERT_LT(l, one.lanes.size());
          EXPECT_EQ(lane.lane, one.lanes[l].lane);
          EXPECT_EQ(lane.first_window, one.lanes[l].first_window);
          EXPECT_EQ(LinesOf(lane), LinesOf(one.lanes[l]));
          position += lane.share;
          last_position += lane.lines - plan.full_steps * lane.share;
          ++l;
        }
      }
      EXPECT_EQ(l, one.lanes.size());
    }
  }
}

TEST(LanePlanTest, RanksReadCompressedFilesFromFrontToBack) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Case c = RandomCase(seed);
    c.pieces = Pieces(&random, 6, 60, 50, true);
    for (const uint32_t ranks : {1u, 2u}) {
      if (ranks > c.options.lanes) continue;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::map<uint32_t, uint32_t> last;  // the last piece of each file
        for (const uint32_t piece : ReadOrder(PlanLanes(c.pieces, c.options, rank, ranks))) {
          if (c.pieces[piece].file % 2 == 0) continue;
          const auto it = last.find(c.pieces[piece].file);
          EXPECT_TRUE(it == last.end() || it->second <= piece);
          last[c.pieces[piece].file] = piece;
        }
      }
    }
  }
}

TEST(LanePlanTest, FewPiecesAreReadByTwoRanks) {
  std::mt19937_64 random(7);
  const std::vector<CountedPiece> pieces = Pieces(&random, 3, 3000, 50, false);
  LaneOptions options;
  options.lanes = 64;
  options.window = 200;
  options.global_batch = 512;
  for (const uint32_t ranks : {2u, 4u, 16u}) {
    size_t reads = 0;
    std::set<uint32_t> read;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::set<uint32_t> own;
      for (const LaneSequence& lane : PlanLanes(pieces, options, rank, ranks).lanes) {
        for (const LanePart& part : lane.parts) own.insert(part.piece);
      }
      reads += own.size();
      read.insert(own.begin(), own.end());
    }
    EXPECT_GT(read.size(), 500u);
    EXPECT_LE(reads - read.size(), 2 * ranks);
  }
}

TEST(LanePlanTest, EpochsDifferAndOneUnshuffledLaneKeepsFileOrder) {
  std::mt19937_64 random(1);
  const std::vector<CountedPiece> pieces = Pieces(&random, 3, 30, 40, false);
  LaneOptions options;
  options.lanes = 8;
  options.window = 50;
  options.global_batch = 16;
  const LanePlanLines first = LinesOf(PlanLanes(pieces, options, 0, 1).lanes[0]);
  EXPECT_EQ(LinesOf(PlanLanes(pieces, options, 0, 1).lanes[0]), first);
  options.seed = 1;
  EXPECT_NE(LinesOf(PlanLanes(pieces, options, 0, 1).lanes[0]), first);
  options.lanes = 1;
  options.shuffle = false;
  const LanePlanLines all = LinesOf(PlanLanes(pieces, options, 0, 1).lanes[0]);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.size(), LinesOf(pieces));
}

TEST(LanePlanTest, WindowsEndAtDifferentStepsUnlessTheyHoldEverything) {
  LaneOptions options;
  options.lanes = 4;
  options.window = 100;
  options.global_batch = 4;
  const LanePlan plan = PlanLanes({{0, 0, 10, 1000}}, options, 0, 1);
  ASSERT_EQ(plan.lanes.size(), 4u);
  for (int l = 0; l < 4; ++l) {
    EXPECT_EQ(plan.lanes[l].WindowEnd(0), 25u * (l + 1));
    EXPECT_EQ(plan.lanes[l].WindowEnd(1), 25u * (l + 1) + 100);
    EXPECT_EQ(plan.lanes[l].WindowEnd(3), 250u);
  }
  options.window = 250;
  for (const LaneSequence& lane : PlanLanes({{0, 0, 10, 1000}}, options, 0, 1).lanes)
    EXPECT_EQ(lane.WindowEnd(0), 250u);
}

TEST(LanePlanTest, PiecesAreSmallButTheirTableStaysSmallToo) {
  constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  EXPECT_EQ(LanePieceBytes(0, 64), 64 * kKiB);
  EXPECT_EQ(LanePieceBytes(128 * kMiB, 64), 128 * kKiB);
  EXPECT_EQ(LanePieceBytes(8 * kGiB, 64), 512 * kKiB);
  EXPECT_EQ(LanePieceBytes(1024 * kGiB, 64), 4 * kMiB);
  EXPECT_EQ(LanePieceBytes(1024 * 1024 * kGiB, 64), 16 * kMiB);
}

TEST(LanePlanTest, GlobalStepsCountTheShortBatchUnlessItIsDropped) {
  EXPECT_EQ(GlobalSteps(0, 8, false), 0u);
  EXPECT_EQ(GlobalSteps(16, 8, false), 2u);
  EXPECT_EQ(GlobalSteps(17, 8, false), 3u);
  EXPECT_EQ(GlobalSteps(17, 8, true), 2u);
  EXPECT_EQ(GlobalSteps(7, 8, true), 0u);
}

// The pieces of a unit of rows stay together, in their order; the units are permuted.
TEST(LanePlanTest, PiecesOfAUnitOfRowsComeOneAfterTheOther) {
  std::vector<CountedPiece> pieces;
  for (uint32_t p = 0; p < 30; ++p) pieces.push_back({0, p * 10, p * 10 + 10, 10, p % 3 != 0});
  LaneOptions options;
  options.seed = 5;
  options.window = 1000;
  options.global_batch = 10;
  const LanePlan plan = PlanLanes(pieces, options, 0, 1);
  ASSERT_EQ(plan.lanes.size(), 1u);
  const std::vector<LanePart>& parts = plan.lanes[0].parts;
  ASSERT_EQ(parts.size(), 30u);
  bool permuted = false;
  for (size_t i = 0; i < 30; i += 3) {
    EXPECT_EQ(parts[i].piece % 3, 0u);
    EXPECT_EQ(parts[i + 1].piece, parts[i].piece + 1);
    EXPECT_EQ(parts[i + 2].piece, parts[i].piece + 2);
    permuted |= parts[i].piece != i;
  }
  EXPECT_TRUE(permuted);
}

}  // namespace
}  // namespace sluice

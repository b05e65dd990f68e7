#include "model/data/row_groups.h"

#include <algorithm>

namespace sluice {
namespace {

// A piece is the least that is read at once. Neither a table of millions of pieces nor examples of
// many megabytes for each lane are wanted.
constexpr uint64_t kLeastPieceRows = 1024, kMostPieceRows = 64 << 10;

}  // namespace

RowGroup SumOf(const std::vector<RowGroup>& groups) {
  RowGroup sum;
  for (const RowGroup& group : groups) {
    sum.rows += group.rows;
    sum.bytes += group.bytes;
  }
  return sum;
}

uint64_t RowsOfBytes(const RowGroup& sum, uint64_t bytes) {
  if (sum.bytes == 0) return std::max<uint64_t>(sum.rows, 1);
  const auto rows = static_cast<unsigned __int128>(bytes) * sum.rows / sum.bytes;
  return static_cast<uint64_t>(std::clamp<unsigned __int128>(rows, 1, UINT64_MAX));
}

std::vector<CountedPiece> CutRows(const std::vector<FileOfRows>& files, uint32_t lanes) {
  RowGroup all;
  uint64_t groups = 0;
  for (const FileOfRows& file : files) {
    const RowGroup sum = SumOf(file.groups);
    all.rows += sum.rows;
    all.bytes += sum.bytes;
    groups += file.groups.size();
  }
  const uint64_t wanted = kUnitsOfALane * lanes;
  const uint64_t piece_rows =
      std::max(std::clamp(RowsOfBytes(all, LanePieceBytes(all.bytes, lanes)), kLeastPieceRows,
                          kMostPieceRows),
               all.rows / kMostPiecesOfRows);
  const uint64_t run_rows = std::max(kLeastRunRows, (all.rows + wanted - 1) / wanted);
  std::vector<CountedPiece> pieces;
  for (const FileOfRows& file : files) {
    uint64_t at = 0;
    for (const RowGroup& group : file.groups) {
      uint64_t runs = 1;
      if (groups < wanted && group.bytes <= kMostRunBytes) {
        runs = std::max<uint64_t>(
            std::min((group.rows + run_rows - 1) / run_rows, group.rows / kLeastRunRows), 1);
        if (all.bytes > kMostRunBytes) runs = std::min(runs, kMostRuns);
      }
      for (uint64_t run = 0; run < runs; ++run) {
        const uint64_t begin = at + group.rows / runs * run + std::min(run, group.rows % runs);
        const uint64_t end =
            at + group.rows / runs * (run + 1) + std::min(run + 1, group.rows % runs);
        for (uint64_t from = begin; from < end; from += piece_rows) {
          const uint64_t to = std::min(from + piece_rows, end);
          pieces.push_back({file.number, from, to, to - from, /*goes_on=*/from > begin});
        }
      }
      at += group.rows;
    }
  }
  return pieces;
}

}  // namespace sluice

// Cuts files of row groups into the pieces of a sync epoch.
//
// What is dealt is a unit, whose pieces follow one another: a row group. Where there are fewer than
// kUnitsOfALane groups a lane, groups are cut into equal runs of at least kLeastRunRows rows until
// there are; one of more than kMostRunBytes stays whole, since a run is found only by decoding what
// stands before it in its group, and a decoded group of this size is not kept. Of more data than
// that in all, most runs find their group decoded no longer, so there are at most kMostRuns in
// each. Pieces have more rows than usual where there would be more than kMostPiecesOfRows.
//
// Invariants: the pieces depend on the files and the lanes alone, and cover each row once.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "model/data/data_source.h"
#include "model/data/lane_plan.h"

namespace sluice {

inline constexpr uint64_t kUnitsOfALane = 4;
inline constexpr uint64_t kLeastRunRows = 4096;
inline constexpr uint64_t kMostRunBytes = 256 << 20;
inline constexpr uint64_t kMostRuns = 4;
// Apart from one for each run. A rank reports its pieces in one message.
inline constexpr uint64_t kMostPiecesOfRows = 1 << 20;

// The row groups of a file, and its number in the list of training files.
struct FileOfRows {
  uint32_t number = 0;
  std::vector<RowGroup> groups;
};

// Sorted by file and begin, when the files are.
// REQUIRES: lanes > 0.
std::vector<CountedPiece> CutRows(const std::vector<FileOfRows>& files, uint32_t lanes);

RowGroup SumOf(const std::vector<RowGroup>& groups);

// The rows that have about `bytes` bytes, at least one.
uint64_t RowsOfBytes(const RowGroup& sum, uint64_t bytes);

}  // namespace sluice

// A FileReader that can be told which ranges of a file will be read.
//
// For readers of files that are far away: they fetch these ranges ahead of their use, and nothing
// else. A local file is mapped or read at once, and has no such reader.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/env.h"

namespace sluice {

struct FileRange {
  uint64_t begin = 0, bytes = 0;
};

class RangesReader : public FileReader {
 public:
  using FileReader::FileReader;

  // Says that these ranges will be read, mostly in this order, and forgets those of the call
  // before. Other bytes can still be read. Ranges, or parts of them, that are not in the file are
  // ignored.
  virtual void ExpectRanges(std::vector<FileRange> ranges) = 0;
  // The same for a file whose other bytes are likely to be read by others, soon: where many ranges
  // lie close to each other, what is between them may be fetched with them.
  virtual void ExpectPieces(std::vector<FileRange> pieces) { ExpectRanges(std::move(pieces)); }
  // Says that the first bytes will be read, by which the form of a file is told.
  virtual void ExpectHead() {}
};

}  // namespace sluice

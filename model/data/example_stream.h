// Reads the lines of part of a file, or of standard input, as examples: in order, piece by piece.
//
// Memory: one line buffer, and the piece.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/batch.h"

namespace sluice {

struct BadLines;

class ExampleStream {
 public:
  struct Options {
    std::string path;    // "" is standard input
    uint64_t begin = 0;  // the lines that start in [begin, end) of the text
    uint64_t end = UINT64_MAX;
    std::string id_column;  // "" for none
  };
  struct Piece {
    Batch examples;
    // For each bad line, the number of examples of the piece before it.
    std::vector<uint64_t> bad_positions;
    // With an id_column: the ids of all lines, bad ones too, in order; "" for a line that could not
    // be split into cells.
    std::vector<std::string> ids;
  };
  virtual ~ExampleStream() = default;

  // Fills *piece with the next lines, about `bytes` of text. A label may be missing. Adds bad lines
  // to *bad. False at the end, with an empty piece.
  virtual absl::StatusOr<bool> Next(uint64_t bytes, Piece* piece, BadLines* bad) = 0;
};

}  // namespace sluice

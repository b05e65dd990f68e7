// Sync: reads the pieces that a rank's lanes are made of, each when the first of its lines is
// needed.
//
// The reader keeps the last piece: when a lane is full, the next lane goes on in the same piece. So
// a rank reads each piece once an epoch. The rank that has the piece's first line counts its
// malformed lines, and in the first epoch what its text holds.
//
// Memory: pieces return to a pool when nothing uses their examples any more.
//
// Thread safety: one thread; the examples may be used and released on any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/example_cache.h"
#include "model/data/lane_plan.h"
#include "worker/job_context.h"
#include "worker/pool.h"

namespace sluice {

// The training data as the index found it.
struct PieceTable {
  std::vector<std::string> files;  // sorted, of all ranks
  std::vector<CountedPiece> pieces;
};

class PieceReader {
 public:
  // `context` and `table` outlive it.
  PieceReader(const JobContext& context, const PieceTable& table)
      : context_(context), table_(table) {}

  // The examples of a piece. FAILED_PRECONDITION: there are more malformed lines than the job
  // allows, or the piece has another number of lines than when it was counted.
  absl::StatusOr<Examples> Read(const LanePart& part);

 private:
  absl::StatusOr<Examples> ReadPiece(const CountedPiece& piece, BadLines* bad,
                                     DataSummary* summary);
  absl::Status Count(const BadLines& bad);

  const JobContext& context_;
  const PieceTable& table_;
  Pool<Batch> pool_;
  uint32_t last_piece_ = 0;
  Examples last_;  // of last_piece_; no owner: there is none
  BadLines bad_;   // of the epoch
};

}  // namespace sluice

// Sync: reads the pieces of a rank's lanes, each when its first line is needed.
//
// The reader keeps the last piece, because the next lane continues in it when a lane is full. So a
// rank reads each piece once an epoch. The rank that has the first line of a piece counts its
// malformed lines and, in the first epoch, summarizes its data.
//
// Memory: a piece returns to a pool when nothing uses its examples any more.
//
// Thread safety: one thread. The examples may be used and released on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/example_cache.h"
#include "model/data/lane_plan.h"
#include "worker/batches/pool.h"
#include "worker/context/job_context.h"

namespace sluice {

// The training data as INDEX found it.
struct PieceTable {
  std::vector<std::string> files;  // of all ranks, sorted
  std::vector<CountedPiece> pieces;
  uint64_t piece_bytes = 0;  // of every piece but the last one of a file
  // The piece's key in the cache of parsed data.
  DataPiece KeyOf(const CountedPiece& piece) const {
    return {files[piece.file], piece.begin, piece.end,
            piece.end == kTextEnd ? piece_bytes : uint64_t{0}};
  }
};

class PieceReader {
 public:
  // `context` and `table` outlive it.
  PieceReader(const JobContext& context, const PieceTable& table)
      : context_(context), table_(table) {
    bad_.count = context.stats->bad_lines();
  }

  // The examples of the piece that `part` is in. FAILED_PRECONDITION when there are more malformed
  // lines than the job allows, or when the piece no longer has the number of lines counted before.
  // `done_after`: an epoch that is resumed after this many of its steps does not read the part
  // again.
  absl::StatusOr<Examples> Read(const LanePart& part, uint64_t done_after);

 private:
  absl::StatusOr<Examples> ReadPiece(const CountedPiece& piece, BadLines* bad,
                                     DataSummary* summary);
  absl::Status Count(const BadLines& bad, uint64_t done_after);

  const JobContext& context_;
  const PieceTable& table_;
  Pool<Batch> pool_;
  uint32_t last_piece_ = 0;
  Examples last_;  // of last_piece_; no owner: nothing read yet
  BadLines last_bad_;
  std::optional<DataSummary> last_summary_;
  BadLines bad_;  // of the epoch, those before a resume too
};

}  // namespace sluice

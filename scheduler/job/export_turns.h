// The turns of a job's checkpoints and exports, one of either at a time, so that no shard has two
// cuts.
//
// Numbers: in a job with exports the odd ones are checkpoints and the even ones exports; in another
// job all are checkpoints.
//
// If both are due, they take turns, because each may last longer than the interval of the other. A
// checkpoint that is due waits kWait for an open export, which then gives way. The next export may
// finish, so that on a slow store every second checkpoint at most waits longer, and exports get
// through.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

class ExportTurns {
 public:
  enum class Kind : uint8_t { kCheckpoint, kExport };
  static constexpr absl::Duration kWait = absl::Minutes(1);

  // `exports`: the job makes any.
  explicit ExportTurns(bool exports) : exports_(exports) {}

  Kind KindOf(uint64_t number) const {
    return exports_ && number % 2 == 0 ? Kind::kExport : Kind::kCheckpoint;
  }
  // The first number of this kind above `over`.
  uint64_t NumberAfter(uint64_t over, Kind kind) const {
    return over + 1 + (exports_ && KindOf(over + 1) != kind ? 1 : 0);
  }
  // When both are due.
  bool ExportGoesFirst() const { return !export_was_last_; }
  // Call while an export is open and a checkpoint is due. True, once: the export is to be given up.
  bool GivesWay(absl::Time now);
  void CheckpointOver() { export_was_last_ = false; }
  // `gave_way`: it was given up for another reason than a failure of its own.
  void ExportOver(bool gave_way);

 private:
  const bool exports_;
  bool export_was_last_ = true;  // of what is over
  bool gave_way_ = false;        // since the last export that is complete or has failed
  absl::Time in_way_since_ = absl::InfiniteFuture();  // the open export, of a due checkpoint
};

}  // namespace sluice

// The turns of a job's checkpoints and exports, one of either at a time, so that no shard has two
// cuts.
//
// Numbers: in a job with exports IsExportCut tells the kind; in another job all are checkpoints.
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
#include "common/saved_model/export_chain.h"

namespace sluice {

class ExportTurns {
 public:
  enum class Kind : uint8_t { kCheckpoint, kExport };
  static constexpr absl::Duration kWait = absl::Minutes(1);

  // `exports`: the job makes any.
  explicit ExportTurns(bool exports) : exports_(exports) {}

  Kind KindOf(uint64_t number) const {
    return exports_ && IsExportCut(number) ? Kind::kExport : Kind::kCheckpoint;
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
  // `given_up`: it is not complete, but has not failed either: a checkpoint was due or asked for,
  // or a member was lost.
  void ExportOver(bool given_up);

 private:
  const bool exports_;
  bool export_was_last_ = true;  // the last one that ended was an export
  bool gave_way_ = false;        // since the last export that is complete or has failed
  // Since when a due checkpoint has waited for the open export.
  absl::Time in_way_since_ = absl::InfiniteFuture();
};

}  // namespace sluice

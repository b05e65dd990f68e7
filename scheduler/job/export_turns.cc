#include "scheduler/job/export_turns.h"

#include <algorithm>

namespace sluice {

bool ExportTurns::GivesWay(absl::Time now) {
  in_way_since_ = std::min(in_way_since_, now);
  if (gave_way_ || now - in_way_since_ < kWait) return false;
  gave_way_ = true;
  return true;
}

void ExportTurns::ExportOver(bool given_up) {
  export_was_last_ = true;
  if (!given_up) gave_way_ = false;
  in_way_since_ = absl::InfiniteFuture();
}

}  // namespace sluice

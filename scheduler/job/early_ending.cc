#include "scheduler/job/early_ending.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/job/job_phases.h"

namespace sluice {

absl::Status EarlyEnding::Check(const EarlyEnd& end, const Phase& present, uint64_t least,
                                uint64_t limit) const {
  if (present.kind() != Phase::TRAIN) {
    return absl::FailedPreconditionError(absl::StrCat("the job is in phase ",
                                                      PhaseName(present.kind()),
                                                      ", so that no program can end its training"));
  }
  if (!sync_ || (end.last_step() >= least && end.last_step() <= limit)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the program's last step is said to be ",
                                                 end.last_step(), ", but the job is between steps ",
                                                 least, " and ", limit));
}

void EarlyEnding::Cut(uint64_t first, Phase* phase) const {
  if (!sync_ || !end_) return;
  // After a rollback the last step may be in a later epoch.
  const uint64_t last = std::max(end_->last_step(), first);
  phase->set_global_steps(std::min<uint64_t>(phase->global_steps(), last - first));
}

bool EarlyEnding::EndsWith(const Phase& phase, uint64_t limit) const {
  if (!end_ || phase.kind() != Phase::TRAIN) return false;
  return !sync_ || limit >= end_->last_step();
}

}  // namespace sluice

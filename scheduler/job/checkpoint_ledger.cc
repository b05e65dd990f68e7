#include "scheduler/job/checkpoint_ledger.h"

#include <algorithm>

namespace sluice {

void CheckpointLedger::Begin(JobCheckpoints::Options options, absl::Time now) {
  checkpoints_.emplace(std::move(options), now);
  checkpoints_->Continue(before_, now);
}

void CheckpointLedger::PassOver(const std::vector<std::string>& damaged) {
  // A restarted scheduler finds the same ones again.
  for (const std::string& save_id : damaged) {
    if (std::count(damaged_.begin(), damaged_.end(), save_id) == 0) damaged_.push_back(save_id);
  }
}

void CheckpointLedger::ToldPservers() {
  told_over_ = checkpoints_->over();
  told_ordered_ = checkpoints_->ordered();
}

}  // namespace sluice

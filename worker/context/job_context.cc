#include "worker/context/job_context.h"

namespace sluice {
namespace {

bool LossesAreReplaced(const JobConfig& config) { return config.recovery().max_losses() > 0; }

}  // namespace

absl::Duration StepPatience(const JobConfig& config) {
  const absl::Duration step = absl::Seconds(config.train().step_timeout_s());
  // Only where losses are replaced does anybody wait for a replacement.
  return LossesAreReplaced(config) ? step + absl::Seconds(config.recovery().wait_s()) : step;
}

std::string StepPatienceOptions(const JobConfig& config) {
  return LossesAreReplaced(config) ? "train.step_timeout_s + recovery.wait_s"
                                   : "train.step_timeout_s";
}

}  // namespace sluice

#include "scheduler/step_counts.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "model/data/lane_plan.h"

namespace sluice {
absl::Status NoExamples(const BadLines& bad) {
  constexpr char kNone[] = "the training data has no examples";
  if (bad.count == 0)
    return absl::FailedPreconditionError(absl::StrCat(kNone, "; see data.train_files"));
  return absl::FailedPreconditionError(
      absl::StrCat(kNone, ", only ", bad.Describe(),
                   "; give other data.train_files, or what fits them in data and features"));
}

absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, const std::vector<uint64_t>& examples) {
  const bool per_rank = config.data().assignment() == DataConfig::PER_RANK_FILES;
  const uint64_t lines = per_rank ? *std::max_element(examples.begin(), examples.end())
                                  : std::accumulate(examples.begin(), examples.end(), uint64_t{0});
  if (lines == 0) return NoExamples({});
  const uint64_t batch = std::max<uint64_t>(config.train().batch_size(), 1) *
                         (per_rank ? 1 : static_cast<uint64_t>(examples.size()));
  const uint64_t steps = GlobalSteps(lines, batch, config.data().drop_last());
  if (steps == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.drop_last leaves nothing to train: ", lines, " examples make no full batch of ",
        batch, "; lower train.batch_size or set data.drop_last: false"));
  }
  return steps;
}

}  // namespace sluice

#include "scheduler/step_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::Status CheckEqual(const std::vector<uint64_t>& examples) {
  if (std::all_of(examples.begin(), examples.end(),
                  [&](uint64_t n) { return n == examples.front(); })) {
    return absl::OkStatus();
  }
  std::string message = "ranks have loaded different numbers of training examples:";
  for (size_t rank = 0; rank < examples.size(); ++rank) {
    absl::StrAppend(&message, rank > 0 ? "," : "", " rank ", rank, ": ", examples[rank]);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(message, "; data.train_files must be the same files on every host"));
}

}  // namespace

absl::Status NoExamples(const BadLines& bad) {
  constexpr char kNone[] = "the training data has no examples";
  if (bad.count == 0)
    return absl::FailedPreconditionError(absl::StrCat(kNone, "; see data.train_files"));
  return absl::FailedPreconditionError(
      absl::StrCat(kNone, ", only ", bad.Describe(),
                   "; give other data.train_files, or what fits them in data and features"));
}

absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, const std::vector<uint64_t>& examples,
                                   const BadLines& bad) {
  const bool per_rank = config.data().assignment() == DataConfig::PER_RANK_FILES;
  const uint64_t most = *std::max_element(examples.begin(), examples.end());
  if (most == 0) return NoExamples(bad);
  if (!per_rank) {
    const absl::Status equal = CheckEqual(examples);
    if (!equal.ok()) return equal;
  }
  const uint64_t batch = std::max<uint64_t>(config.train().batch_size(), 1) *
                         (per_rank ? 1 : static_cast<uint64_t>(examples.size()));
  const uint64_t steps = config.data().drop_last() ? most / batch : (most + batch - 1) / batch;
  if (steps == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.drop_last leaves nothing to train: ", most, " examples make no full batch of ", batch,
        "; lower train.batch_size or set data.drop_last: false"));
  }
  return steps;
}

}  // namespace sluice

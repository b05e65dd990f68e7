#include "python/core/run_end.h"

#include <chrono>

#include "common/transport/retry.h"

namespace sluice {
namespace {

// Whether a run that has ended so may have lost the job to its next attempt.
bool AttemptMayFollow(const absl::Status& status) {
  return absl::IsCancelled(status) || MayGoWellInNextAttempt(status.code());
}

}  // namespace

void RunEnd::Starts() {
  MutexLock lock(&mutex_);
  runs_ = true;
}

std::optional<absl::Status> RunEnd::Ended(const absl::Status& status) {
  MutexLock lock(&mutex_);
  runs_ = false;
  last_ = status;
  ended_.NotifyAll();
  if (AttemptMayFollow(status)) return std::nullopt;
  return status;
}

std::optional<absl::Status> RunEnd::Stopped(const absl::Status& status) {
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience_);
  while (runs_) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    ended_.WaitFor(&mutex_, left);
  }
  if (runs_ || !last_.has_value())
    return absl::CancelledError("the cluster was stopped before the job ended");
  if (last_->ok()) return std::nullopt;
  // The run has seen only that the job was taken away.
  if (AttemptMayFollow(*last_))
    return absl::CancelledError(
        "the job has ended elsewhere; result.json and the launcher say why");
  return *last_;
}

}  // namespace sluice

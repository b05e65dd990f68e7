#include "python/core/source_exchange.h"

#include <chrono>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {
constexpr std::chrono::milliseconds kSourceLook(100);
}  // namespace

uint64_t SourceExchange::Open(SourceRequest request) {
  MutexLock lock(&mutex_);
  request.number = request_.number + 1;
  request_ = request;
  open_ = true;
  ended_ = false;
  batches_.clear();
  count_.reset();
  changed_.NotifyAll();
  return request_.number;
}

absl::Status SourceExchange::Wait(uint64_t number, const std::function<bool()>& stopped,
                                  const std::function<bool()>& ready) {
  while (IsOpen(number) && !ready()) {
    if (stopped()) return absl::CancelledError("the job needs no more batches");
    changed_.WaitFor(&mutex_, kSourceLook);
  }
  if (!failure_.ok()) return failure_;
  return IsOpen(number) ? absl::OkStatus() : absl::CancelledError("the source was closed");
}

absl::StatusOr<SourceExchange::Batch> SourceExchange::Next(uint64_t number,
                                                           const std::function<bool()>& stopped) {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(Wait(number, stopped, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ended_ || !batches_.empty();
  }));
  if (batches_.empty()) return Batch();
  Batch next = std::move(batches_.front());
  batches_.pop_front();
  changed_.NotifyAll();
  return next;
}

absl::StatusOr<uint64_t> SourceExchange::Count(uint64_t number,
                                               const std::function<bool()>& stopped) {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(Wait(
      number, stopped, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return count_.has_value(); }));
  open_ = false;
  return *count_;
}

void SourceExchange::Close(uint64_t number) {
  MutexLock lock(&mutex_);
  if (number != request_.number) return;
  open_ = false;
  batches_.clear();
  changed_.NotifyAll();
}

absl::StatusOr<std::optional<SourceRequest>> SourceExchange::Await(absl::Duration at_most) {
  MutexLock lock(&mutex_);
  const auto news = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return open_ && request_.number > served_;
  };
  if (failure_.ok() && !news()) changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(at_most));
  if (!failure_.ok()) return absl::OutOfRangeError("the job is over");
  if (!news()) return std::nullopt;
  served_ = request_.number;
  return request_;
}

void SourceExchange::Counted(uint64_t number, uint64_t batches) {
  MutexLock lock(&mutex_);
  if (IsOpen(number)) count_ = batches;
  changed_.NotifyAll();
}

bool SourceExchange::Give(uint64_t number, Batch batch) {
  MutexLock lock(&mutex_);
  while (IsOpen(number) && batches_.size() >= kAhead) changed_.Wait(&mutex_);
  if (!IsOpen(number)) return false;
  batches_.push_back(std::move(batch));
  changed_.NotifyAll();
  return true;
}

void SourceExchange::EndBatches(uint64_t number) {
  MutexLock lock(&mutex_);
  if (IsOpen(number)) ended_ = true;
  changed_.NotifyAll();
}

void SourceExchange::Fail(absl::Status why) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(why);
  changed_.NotifyAll();
}

}  // namespace sluice

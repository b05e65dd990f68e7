#include "python/core/program_exchange.h"

#include <utility>

namespace sluice {

absl::Status ProgramExchange::Run(const ProgramTurn& turn, const std::atomic<bool>& cancelled) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  if (ended_.has_value()) return absl::FailedPreconditionError("the job has ended");
  turn_ = turn;
  state_ = State::kOffered;
  changed_.NotifyAll();
  // Once the turn is taken, only the program's thread ends it: it may be using the memory.
  while (state_ == State::kOffered || state_ == State::kTaken) {
    if (state_ == State::kOffered && (cancelled || !failure_.ok())) {
      state_ = State::kIdle;
      return failure_.ok() ? absl::CancelledError("the job was cancelled") : failure_;
    }
    changed_.Wait(&mutex_);
  }
  state_ = State::kIdle;
  return std::move(answer_);
}

void ProgramExchange::Wake() {
  // With the lock: a Run that has just looked at its flag waits by now, and is notified.
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

void ProgramExchange::End(absl::Status how) {
  MutexLock lock(&mutex_);
  if (!ended_.has_value()) ended_ = std::move(how);
  changed_.NotifyAll();
}

absl::StatusOr<const ProgramTurn*> ProgramExchange::Take(absl::Duration at_most) {
  MutexLock lock(&mutex_);
  // Once: the caller asks again anyway, also after a wake-up that was for somebody else.
  if (state_ != State::kOffered && !ended_.has_value() && failure_.ok())
    changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(at_most));
  if (state_ == State::kOffered) {
    state_ = State::kTaken;
    return &turn_;
  }
  if (ended_.has_value())
    return ended_->ok() ? absl::OutOfRangeError("the job has ended") : *ended_;
  if (!failure_.ok()) return failure_;
  return nullptr;
}

void ProgramExchange::Answer(absl::Status result) {
  MutexLock lock(&mutex_);
  if (state_ != State::kTaken) return;
  answer_ = std::move(result);
  state_ = State::kAnswered;
  changed_.NotifyAll();
}

void ProgramExchange::Fail(absl::Status why) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(why);
  if (state_ == State::kTaken) {
    answer_ = failure_;
    state_ = State::kAnswered;
  }
  changed_.NotifyAll();
}

}  // namespace sluice

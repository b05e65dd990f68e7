#include "python/core/program_exchange.h"

#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status HasLeft() { return absl::OutOfRangeError("the program has left its loop"); }

}  // namespace

absl::Status ProgramExchange::Run(const ProgramTurn& turn, const std::atomic<bool>& cancelled,
                                  const Meanwhile& meanwhile) {
  SLUICE_RETURN_IF_ERROR(Offer(turn));
  absl::Status withdrawn;
  for (;;) {
    const absl::Duration at_most = meanwhile ? kMeanwhile : absl::InfiniteDuration();
    if (const auto answer = AwaitAnswer(cancelled, withdrawn, at_most)) return *answer;
    if (meanwhile && withdrawn.ok()) withdrawn = meanwhile();
  }
}

absl::Status ProgramExchange::Offer(const ProgramTurn& turn) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  if (ended_.has_value()) return absl::FailedPreconditionError("the job has ended");
  if (left_ && turn.trains()) return HasLeft();
  turn_ = turn;
  withdrawn_ = false;
  state_ = State::kOffered;
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::optional<absl::Status> ProgramExchange::AwaitAnswer(const std::atomic<bool>& cancelled,
                                                         const absl::Status& withdrawn,
                                                         absl::Duration at_most) {
  MutexLock lock(&mutex_);
  for (bool waited = false;; waited = true) {
    // Once the turn is taken, only the program's thread ends it: it may be using the memory.
    if (state_ == State::kAnswered) {
      state_ = State::kIdle;
      return withdrawn.ok() ? std::move(answer_) : withdrawn;
    }
    if (state_ == State::kOffered && (cancelled || !failure_.ok() || !withdrawn.ok())) {
      state_ = State::kIdle;
      if (!failure_.ok()) return failure_;
      return withdrawn.ok() ? absl::CancelledError("the job was cancelled") : withdrawn;
    }
    withdrawn_ = cancelled || !withdrawn.ok();
    if (at_most == absl::InfiniteDuration()) {
      changed_.Wait(&mutex_);
    } else if (waited) {
      return std::nullopt;
    } else {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(at_most));
    }
  }
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

absl::Status ProgramExchange::MayWait() {
  MutexLock lock(&mutex_);
  if (state_ == State::kTaken && withdrawn_)
    return absl::AbortedError("this attempt of the job is over");
  if (ended_.has_value())
    return ended_->ok() ? absl::OutOfRangeError("the job has ended") : *ended_;
  return failure_;
}

void ProgramExchange::Answer(absl::Status result) {
  MutexLock lock(&mutex_);
  if (state_ != State::kTaken) return;
  answer_ = std::move(result);
  state_ = State::kAnswered;
  changed_.NotifyAll();
}

void ProgramExchange::Leave() {
  MutexLock lock(&mutex_);
  left_ = true;
  if ((state_ == State::kTaken || state_ == State::kOffered) && turn_.trains()) {
    answer_ = HasLeft();
    state_ = State::kAnswered;
  }
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

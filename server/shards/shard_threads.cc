#include "server/shards/shard_threads.h"

#include <algorithm>

namespace sluice {

ShardThreads::ShardThreads(int helpers, std::chrono::microseconds worth_sharing)
    : worth_sharing_(worth_sharing) {
  for (int i = 0; i < helpers; ++i) helpers_.emplace_back([this] { Loop(); });
}

ShardThreads::~ShardThreads() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    begun_.NotifyAll();
  }
  for (std::thread& helper : helpers_) helper.join();
}

void ShardThreads::ForEachAlone(size_t n, absl::FunctionRef<void(size_t)> work) {
  // An item that throws does not keep the others from running, just as with helpers.
  std::exception_ptr error;
  for (size_t i = 0; i < n; ++i) {
    try {
      work(i);
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void ShardThreads::ForEach(size_t n, absl::FunctionRef<void(size_t)> work) {
  if (helpers_.empty() || n < 2) return ForEachAlone(n, work);
  Round round{work, n};
  MutexLock lock(&mutex_);
  rounds_.push_back(&round);
  begun_.NotifyAll();
  // The caller takes items too, and then waits only for those that helpers have begun.
  while (round.next < round.items) RunNext(&round);
  while (round.running > 0) ended_.Wait(&mutex_);
  if (round.error != nullptr) std::rethrow_exception(round.error);
}

void ShardThreads::RunNext(Round* round) {
  const size_t item = round->next++;
  ++round->running;
  if (round->next == round->items) rounds_.erase(std::find(rounds_.begin(), rounds_.end(), round));
  mutex_.Unlock();
  std::exception_ptr error;
  try {
    round->work(item);
  } catch (...) {
    error = std::current_exception();
  }
  mutex_.Lock();
  if (error != nullptr) round->error = error;
  // The caller may return, and the round end, as soon as this thread gives the lock back.
  if (--round->running == 0 && round->next == round->items) ended_.NotifyAll();
}

void ShardThreads::Loop() {
  MutexLock lock(&mutex_);
  while (true) {
    while (rounds_.empty() && !stopping_) begun_.Wait(&mutex_);
    if (rounds_.empty()) return;
    RunNext(rounds_.front());
  }
}

}  // namespace sluice

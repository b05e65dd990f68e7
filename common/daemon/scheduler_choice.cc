#include "common/daemon/scheduler_choice.h"

namespace sluice {

size_t SchedulerChoice::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

std::optional<size_t> SchedulerChoice::Choose(const std::vector<bool>& connected) {
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < schedulers_; ++i) {
    const size_t index = (current_ + i) % schedulers_;
    if (!connected[index]) continue;
    current_ = index;
    return index;
  }
  return std::nullopt;
}

std::optional<size_t> SchedulerChoice::ChooseOther(size_t silent,
                                                   const std::vector<bool>& connected) {
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < schedulers_; ++i) {
    const size_t index = (current_ + i) % schedulers_;
    if (index == silent || !connected[index]) continue;
    current_ = index;
    return index;
  }
  return std::nullopt;
}

void SchedulerChoice::NoAnswer(size_t index) {
  MutexLock lock(&mutex_);
  // Several calls share the choice. A call that fails late must not undo a newer choice, which may
  // have been answered already.
  if (current_ == index) current_ = (index + 1) % schedulers_;
}

}  // namespace sluice

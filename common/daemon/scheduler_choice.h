// Chooses which of a cluster's schedulers gets the calls: the one that answered last.
//
// Only a scheduler that leads takes connections. One that is cut off from a client, or stopped, may
// keep its connection without answering.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {

class SchedulerChoice {
 public:
  explicit SchedulerChoice(size_t schedulers) : schedulers_(schedulers) {}

  // The index of the chosen one: 0 to begin with.
  size_t current() const;
  // Chooses among those that have a connection: the current one, else the next in turn. Nothing
  // when none has.
  std::optional<size_t> Choose(const std::vector<bool>& connected);
  // `silent` has not answered for long: chooses among the others that have a connection, as above.
  std::optional<size_t> ChooseOther(size_t silent, const std::vector<bool>& connected);
  // A call to `index` got no answer: the next one is tried first from now on, unless another one
  // has been chosen since.
  void NoAnswer(size_t index);

 private:
  const size_t schedulers_;
  mutable Mutex mutex_;
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

// A pool of objects that return to a free list when their last shared_ptr is released.
//
// An object may outlive its pool.
//
// Memory: objects in the free list keep the memory that they have allocated.
//
// Thread safety: safe from any thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {

template <typename T>
class Pool {
 public:
  Pool() : state_(std::make_shared<State>()) {}

  std::shared_ptr<T> Take() {
    std::unique_ptr<T> object;
    {
      MutexLock lock(&state_->mutex);
      if (!state_->free.empty()) {
        object = std::move(state_->free.back());
        state_->free.pop_back();
      }
    }
    if (!object) object = std::make_unique<T>();
    T* raw = object.release();
    return std::shared_ptr<T>(raw, [state = state_](T* returned) {
      MutexLock lock(&state->mutex);
      state->free.emplace_back(returned);
    });
  }

 private:
  struct State {
    Mutex mutex;
    std::vector<std::unique_ptr<T>> free ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_;
};

}  // namespace sluice

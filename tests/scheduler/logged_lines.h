// The lines that a scheduler logs, for tests: its timer logs beside the calls of the test.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {

class LoggedLines {
 public:
  void Add(const std::string& line) {
    MutexLock lock(&mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> Get() const {
    MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

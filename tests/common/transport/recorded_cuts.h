// Records which streams a server cuts because their clients do not read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/transport/served_streams.h"

namespace sluice {

class RecordedCuts {
 public:
  using Cut = std::pair<std::string, absl::Status>;  // address, reason

  explicit RecordedCuts(AuditLog* audit = nullptr) : audit_(audit) {}

  // They must not outlive this.
  RoomReports::Options reports() {
    RoomReports::Options options;
    options.audit = audit_;
    options.on_cut = [this](const std::string& address, const absl::Status& why) {
      MutexLock lock(&mutex_);
      cuts_.emplace_back(address, why);
    };
    return options;
  }
  std::vector<Cut> all() {
    MutexLock lock(&mutex_);
    return cuts_;
  }

 private:
  AuditLog* const audit_;
  Mutex mutex_;
  std::vector<Cut> cuts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

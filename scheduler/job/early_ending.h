// Decides where training ends after a program has left its loop before the last epoch was over.
//
// In sync, training ends after a global step. In async, it ends with the training phase that is
// under way when the scheduler learns of it, or with the next one if none is under way.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class EarlyEnding {
 public:
  // Without `end`, training goes on to its last epoch.
  EarlyEnding(bool sync, std::optional<EarlyEnd> end) : sync_(sync), end_(std::move(end)) {}

  // FAILED_PRECONDITION: `present` is not a training phase. INVALID_ARGUMENT, sync: no rank can
  // have made its last step there, because the job is between global steps `least` and `limit`.
  absl::Status Check(const EarlyEnd& end, const Phase& present, uint64_t least,
                     uint64_t limit) const;
  void Set(const EarlyEnd& end) { end_ = end; }
  bool known() const { return end_.has_value(); }

  // Sync: shortens a training phase that begins after global step `first`, if the last step of the
  // job is in it.
  void Cut(uint64_t first, Phase* phase) const;
  // True when `phase` is the training phase that ends early. `limit`, sync: its last global step.
  bool EndsWith(const Phase& phase, uint64_t limit) const;
  // Sync: true when a rank has committed the global step after the job's last one. That step never
  // closes.
  bool IsAhead(uint64_t committed, const Phase& phase, uint64_t limit) const {
    return EndsWith(phase, limit) && committed == limit + 1;
  }

 private:
  const bool sync_;
  std::optional<EarlyEnd> end_;
};

}  // namespace sluice

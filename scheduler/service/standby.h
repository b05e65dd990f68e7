// Waits as a standby until no other scheduler leads, and takes the term then.
//
// The store's lease ends with its leader, so the standby asks who leads again and again. After the
// store itself was unreachable, a leader that still runs may have lost its lease. The standby gives
// it the time of one lease to renew it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

class Standby {
 public:
  struct Options {
    Leadership* leadership = nullptr;  // outlives the standby
    Clock* clock = nullptr;            // outlives the standby
    absl::Duration lease;              // of those that lead
    absl::Duration look_every = absl::Milliseconds(200);
    // Waits. Returns false when this process must end.
    std::function<bool(absl::Duration)> pause;
    // Gets the reason for waiting whenever it changes.
    std::function<void(const std::string&)> say;
  };
  explicit Standby(Options options) : options_(std::move(options)) {}

  // Returns the term. CANCELLED: `pause` returned false. OUT_OF_RANGE: the leader has ended the
  // cluster. Otherwise errors of the store that do not pass.
  absl::StatusOr<uint64_t> AwaitTerm();

 private:
  void Say(const std::string& who, const std::string& why);

  const Options options_;
  std::string said_;  // whom the last reason named
};

}  // namespace sluice

// Waits until this scheduler may lead, and takes the term then: a standby until no other scheduler
// leads, any other one until the store takes its term.
//
// The store's lease ends with its leader, so the standby asks who leads again and again. After the
// store itself was unreachable, a leader that still runs may have lost its lease. The standby gives
// it the time of one lease to renew it.
//
// A store that refuses to write because it is full gives nobody a term. Members may be without a
// scheduler then, so `answer` lets this one answer them, unless another one leads.
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
    Leadership* leadership = nullptr;  // outlives the standby; null: of a store of one process
    // Takes the term, also from a scheduler that leads. Null: a standby, which leaves it its term.
    std::function<absl::StatusOr<uint64_t>()> take;
    std::string name;  // under which this one would lead, and an earlier life of it has led
    Clock* clock = nullptr;            // outlives the standby
    absl::Duration lease;              // of those that lead
    absl::Duration look_every = absl::Milliseconds(200);
    // Waits. Returns false when this process must end.
    std::function<bool(absl::Duration)> pause;
    // Gets the reason for waiting whenever it changes.
    std::function<void(const std::string&)> say;
    // Nobody leads, and the store refuses to write: members may be told why they have to wait. "":
    // another one leads now. May be null.
    std::function<void(const std::string& why)> answer;
  };
  explicit Standby(Options options) : options_(std::move(options)) {}

  // Returns the term. CANCELLED: `pause` returned false. OUT_OF_RANGE: the leader has ended the
  // cluster. Otherwise errors of the store that do not pass.
  absl::StatusOr<uint64_t> AwaitTerm();

 private:
  absl::StatusOr<uint64_t> AwaitFreeTerm();
  void Say(const std::string& who, const std::string& why);
  void Answer(const std::string& why);

  const Options options_;
  std::string said_;     // whom the last reason named
  std::string answers_;  // what `answer` was told last
};

}  // namespace sluice

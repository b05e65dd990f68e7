// Holds the calls that wait, indexed by what they wait for and by their deadline.
//
// Invariants: a call is answered exactly once: when its key has changed and it is ready, or at its
// deadline.
//
// Each caller has room for some calls, and all together (CallRoom). A further one
// answers the oldest of its caller, or of the caller with the most, at once, as at its deadline. So
// whoever calls without end can fill neither the memory nor the server's places, and nobody is
// locked out. Of calls with one name, a newer one answers the older one in the same way.
//
// Cost: an event looks only at the calls whose keys it has changed and at those that are due.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "scheduler/call_room.h"
#include "scheduler/scheduler_core.h"

namespace sluice {

class WaitingCalls {
 public:
  using Answer = std::function<void()>;
  struct Call {
    std::string caller;  // whom the calls are counted for; many members may be one caller
    // An honest caller never has two waiting calls with one name. Empty: the call has no name.
    std::string name;
    WaitKey key;
    absl::Time deadline;
    // True when the call can be answered. May become true only when the core reports `key` changed.
    std::function<bool(SchedulerCore&)> ready;
    // Makes the answer, a function that must be called without the owner's lock. May change the
    // core.
    std::function<Answer(SchedulerCore&, absl::Time)> finish;
  };

  explicit WaitingCalls(const CallRoom& room = CallRoom()) : room_(room) {}

  // Returns whose oldest call has lost its room to this one, if one has. Settle must follow: it
  // answers that call.
  // REQUIRES: the call is not ready.
  std::optional<std::string> Add(Call call);

  // Removes the calls that are ready or due at `now`, or all calls with `all`, and returns their
  // answers in the order in which the calls came. Calls that an answer made ready follow.
  std::vector<Answer> Settle(SchedulerCore* core, absl::Time now, bool all);

  size_t size() const { return calls_.size(); }
  // The calls that were answered early, because their caller or all had too many.
  uint64_t crowded_out() const { return crowded_out_; }

 private:
  using Number = uint64_t;  // of a call, in the order in which they came
  using Numbers = absl::btree_set<Number>;

  void CollectReady(SchedulerCore* core, Numbers* ripe) const;
  void CollectDue(absl::Time now, bool all, Numbers* ripe) const;
  Call Remove(Number number);
  // Keeps the ranking true while the calls of a caller change.
  template <class Change>
  void ChangeCallsOf(const std::string& caller, const Change& change);
  void CrowdOut(const std::string& caller);

  const CallRoom room_;
  uint64_t crowded_out_ = 0;
  Number next_ = 0;
  absl::flat_hash_map<Number, Call> calls_;
  absl::flat_hash_map<WaitKey, Numbers> by_key_;
  absl::flat_hash_map<std::string, Numbers> by_caller_;
  absl::btree_set<std::pair<size_t, std::string>> ranking_;  // callers by the number of their calls
  absl::flat_hash_map<std::string, Number> by_name_;
  Numbers without_room_;
  absl::btree_set<std::pair<absl::Time, Number>> by_deadline_;
};

}  // namespace sluice

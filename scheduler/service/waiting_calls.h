// Holds the calls that wait, indexed by what they wait for and by their deadline.
//
// Invariants: a call is answered exactly once: when its key has changed and it is ready, or at its
// deadline.
//
// Each caller has room for some calls, and so have all together (CallRoom). When a call finds no
// room, the oldest call of its caller, or of the caller with the most, is answered at once, as at
// its deadline. So a caller that never stops calling can fill neither the memory nor the server's
// places, and nobody is locked out. A new call replaces a waiting call of the same name, which is
// answered at once.
//
// Cost: an event looks only at the calls whose keys it has changed and at those that are due.
//
// Thread safety: none; the owner locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "scheduler/core/scheduler_core.h"

namespace sluice {

// How many calls a scheduler takes at a time.
//
// A worker may have two calls that wait, for orders and for its next phase, and a pserver has one.
// All members may share one host (as seen from here) and one certificate, so one caller has room
// for the calls of all. Members that are too many for the scheduler's places would only answer each
// other's calls early.
struct CallRoom {
  size_t waiting = 6144;            // WaitingCalls, of all callers
  size_t waiting_per_caller = 512;  // a certificate on a host
  size_t open = 8192;               // of the server: those that wait, and a third more
  size_t open_per_caller = 2048;

  // 0 members: their number is not known.
  static CallRoom For(size_t workers, size_t pservers) {
    const CallRoom least;
    const size_t of_members = 2 * workers + pservers;
    const size_t with_others = of_members + of_members / 2;  // those of operators and repetitions
    CallRoom room;
    room.waiting = std::max(least.waiting, with_others);
    room.waiting_per_caller = std::max(least.waiting_per_caller, of_members);
    room.open = room.waiting + room.waiting / 3;
    room.open_per_caller = std::max(least.open_per_caller, with_others);
    return room;
  }
};

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

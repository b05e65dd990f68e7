// Decides, on a follower, whose changes its copies take and whether a successor may read them.
//
// Invariants (ack_gate.h has the reasons):
// - Copies are accepted only from the primary that this pserver follows, and only if the sender
//   knows a route at least as new as the one that made this pserver the follower.
// - Sealed copies never change, and stay complete until they are dropped. Only the newest successor
//   may read and drop them: an earlier one may be believed dead.
// - A route that names another follower, or none, drops the copies.
//
// Thread safety: guarded by the owner's lock.
//
// Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace sluice {

class CopyRegister {
 public:
  // A route of this generation is in force here. `mine`: it makes this pserver the follower of
  // `primary`. Returns true when copies of the primary must be dropped.
  bool Assign(uint32_t primary, bool mine, uint64_t generation) {
    Entry& entry = entries_[primary];
    if (mine && !entry.mine) entry.least = generation;
    entry.mine = mine;
    return !mine && Forget(&entry);
  }

  // A primary begins to send copies, which replace incomplete ones. Returns their number.
  // FAILED_PRECONDITION: the primary may not send copies now; it may ask again with a newer route.
  absl::StatusOr<uint64_t> Begin(uint32_t primary, uint64_t generation) {
    Entry& entry = entries_[primary];
    if (absl::Status known = Check(entry, primary, generation); !known.ok()) return known;
    if (entry.copies != 0 && (entry.complete || entry.sealed)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the copies of pserver ", primary, " are complete already"));
    }
    Forget(&entry);
    entry.copies = ++next_;
    entry.generation = generation;
    return entry.copies;
  }
  // True when these copies may change.
  bool TakesChanges(uint32_t primary, uint64_t copies) const {
    const Entry* entry = Find(primary, copies);
    return entry != nullptr && !entry->sealed;
  }
  // Marks the copies as complete: they have every update that was acknowledged.
  // REQUIRES: TakesChanges.
  void Complete(uint32_t primary, uint64_t copies) {
    if (Find(primary, copies) != nullptr) entries_[primary].complete = true;
  }
  // A successor of the primary, which a route of this generation names, wants to read. Returns the
  // number of the copies, which are sealed now. NOT_FOUND: there are no complete ones.
  absl::StatusOr<uint64_t> Seal(uint32_t primary, uint64_t generation) {
    Entry& entry = entries_[primary];
    if (absl::Status known = Check(entry, primary, generation); !known.ok()) return known;
    entry.least = generation;
    if (entry.copies == 0 || !entry.complete) {
      return absl::NotFoundError(
          absl::StrCat("this pserver has no complete copies of pserver ", primary));
    }
    entry.sealed = true;
    return entry.copies;
  }
  // Returns true when these copies were still there.
  bool Drop(uint32_t primary, uint64_t copies) {
    return Find(primary, copies) != nullptr && Forget(&entries_[primary]);
  }
  // OK while a successor that sealed these copies in this generation may read and drop them.
  // NOT_FOUND: they are gone. FAILED_PRECONDITION: a later successor has sealed them.
  absl::Status CheckReader(uint32_t primary, uint64_t copies, uint64_t generation) const {
    const Entry* entry = Find(primary, copies);
    if (entry == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("this pserver has no complete copies of pserver ", primary));
    }
    return Check(*entry, primary, generation);
  }

  bool complete(uint32_t primary, uint64_t copies) const {
    const Entry* entry = Find(primary, copies);
    return entry != nullptr && entry->complete;
  }
  bool HasCompleteForTest(uint32_t primary) const {
    const auto it = entries_.find(primary);
    return it != entries_.end() && it->second.complete;
  }
  // The route in which the primary began to send the present copies.
  uint64_t generation(uint32_t primary) const {
    const auto it = entries_.find(primary);
    return it == entries_.end() ? 0 : it->second.generation;
  }

 private:
  struct Entry {
    bool mine = false;
    uint64_t least = 0;   // generation that a sender must know
    uint64_t copies = 0;  // number of the present ones; 0: none
    uint64_t generation = 0;
    bool complete = false, sealed = false;
  };

  static bool Forget(Entry* entry) {
    const bool had = entry->copies != 0;
    entry->copies = entry->generation = 0;
    entry->complete = entry->sealed = false;
    return had;
  }
  static absl::Status Check(const Entry& entry, uint32_t primary, uint64_t generation) {
    if (entry.mine && generation >= entry.least) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "this pserver is not the follower of pserver ", primary, " in generation ", generation,
        entry.mine ? absl::StrCat(", but from ", entry.least, " on") : ""));
  }
  const Entry* Find(uint32_t primary, uint64_t copies) const {
    const auto it = entries_.find(primary);
    if (it == entries_.end() || it->second.copies != copies || copies == 0) return nullptr;
    return &it->second;
  }

  std::map<uint32_t, Entry> entries_;  // by primary, an index in the route
  uint64_t next_ = 0;
};

}  // namespace sluice

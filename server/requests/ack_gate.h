// Decides when a pserver with a follower may acknowledge an update, so that no acknowledged update
// can be lost with this process.
//
//   kAlone    the route names no follower: acknowledgements leave at once
//   kSeeding  copies are being made: acknowledgements leave at once
//   kHolding  the copies are complete: an acknowledgement leaves when the follower has confirmed
//             everything that was applied before it
//   kVoiding  the stream to the follower is broken, and the copies may lack what is applied next:
//             nothing is acknowledged until the scheduler has given the copies up
//
// Claim: an update that was acknowledged is in the primary's shards or in the copies that the
// scheduler would use. It follows from these rules:
//
// Invariants:
// 1. A change gets its position in the log in the critical section that applies it, and the log
//    goes to the follower in the order of positions (Shard::Apply, ChangeLog).
// 2. The follower's copies count as complete from the message `complete` on. The primary sends it
//    after all images and all changes so far, and holds acknowledgements from the same moment on
//    (Hold). So what was acknowledged before is in front of that message.
// 3. In kHolding an acknowledgement leaves only when the follower has confirmed a position that is
//    not before the acknowledged change. The follower confirms what it has applied (ShardCopy).
// 4. kHolding ends only by Break, and then kVoiding only by a route that names no follower for this
//    pserver. When the scheduler publishes such a route, it uses the copies no more
//    (FollowerPlan::Note).
// 5. The scheduler names a follower again only when both pservers work under a route without one
//    (FollowerPlan::Advance). So neither can miss that the earlier copies are void: the primary
//    passes through kAlone, and the follower has dropped them (CopyRegister::Assign).
// 6. Copies that a successor reads are sealed first: the follower applies and confirms nothing more
//    for a primary that was only believed dead (CopyRegister::Seal). It then accepts copies only
//    from pservers that know the route which named the successor.
// 7. The successor has the copies dropped before it serves anybody (CopyReader). The copies need
//    not contain what the successor acknowledges afterwards.
// 8. HostedJob.generation with its positions is an acknowledgement as well, since the scheduler
//    does not let the examples behind it be trained again. So a report names a route only when
//    everything that was applied before the route was taken may be acknowledged
//    (JobTables::HoldBackNews). The state of this class is told at once, with the route under which
//    the Replicator works (Replication.generation). Otherwise a pserver in kVoiding that holds a
//    report back could not say that it waits for rule 4, and would wait forever. A follower is
//    named again only with a new generation, so what is told of the present route is about the
//    present copies.
//
// Thread safety: guarded by the owner's lock.
//
// Pure: no clock, no I/O. tests/server/replica_model_test.cc checks the claim on random histories.
#pragma once

#include <cstdint>

namespace sluice {

class AckGate {
 public:
  enum class State { kAlone, kSeeding, kHolding, kVoiding };
  // Changes that have been made: those up to this position of the session.
  struct Mark {
    uint64_t session = 0, position = 0;
  };

  State state() const { return state_; }
  // Counts the streams to the follower, each of which numbers its changes from 1.
  uint64_t session() const { return session_; }
  uint64_t confirmed() const { return confirmed_; }

  // A route is in force that names a follower, or none.
  void Assign(bool has_follower) {
    if (!has_follower) {
      state_ = State::kAlone;
    } else if (state_ == State::kAlone) {
      state_ = State::kSeeding;
    }
  }
  // A new stream to the follower begins.
  // REQUIRES: kSeeding.
  uint64_t BeginSession() {
    confirmed_ = 0;
    return ++session_;
  }
  // `complete` is the next message to the follower.
  // REQUIRES: kSeeding.
  void Hold() { state_ = State::kHolding; }
  // The follower has confirmed this position of the present session.
  void Confirm(uint64_t position) {
    if (position > confirmed_) confirmed_ = position;
  }
  // The stream is broken, or is given up.
  void Break() {
    if (state_ == State::kHolding) state_ = State::kVoiding;
  }

  // True when an acknowledgement may leave for changes up to this position of the present session.
  bool MayLeave(uint64_t position) const {
    switch (state_) {
      case State::kAlone:
      case State::kSeeding:
        return true;
      case State::kHolding:
        return position <= confirmed_;
      case State::kVoiding:
        return false;
    }
    return false;
  }
  // Later sessions begin with images, which have all changes of earlier ones.
  bool MayLeave(const Mark& changes) const {
    return changes.session != session_ || MayLeave(changes.position);
  }

 private:
  State state_ = State::kAlone;
  uint64_t session_ = 0, confirmed_ = 0;
};

}  // namespace sluice

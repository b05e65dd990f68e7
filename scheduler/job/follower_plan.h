// Decides which pserver keeps copies of which, and whether a lost pserver's shards continue from
// them (RecoveryConfig.replicas).
//
// The follower of pserver i is pserver i + 1 of the route, and the first one follows the last one.
// A pserver has none while copies of it are void. Copies become void when a route without a
// follower is published.
//
// Invariants (server/requests/ack_gate.h has the whole argument):
// - Copies are used only if the present route names the follower, the follower reports them as
//   complete, and this report is of the present route.
// - A pserver is named follower again only after it and the primary have both reported a route
//   without it that is newer than the route of the decision.
//
// Thread safety: one thread.
//
// Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "proto/scheduler.pb.h"

namespace sluice {

class FollowerPlan {
 public:
  // Every pserver gets its follower.
  // REQUIRES: at least two pservers.
  explicit FollowerPlan(uint32_t pservers);
  // The plan of an attempt that an earlier scheduler began: JobSpec.follower.
  explicit FollowerPlan(const google::protobuf::RepeatedField<uint32_t>& followers);

  // By pserver: JobSpec.follower.
  const std::vector<uint32_t>& followers() const { return followers_; }

  // The methods below return true when `followers` has changed: publish it with a new generation.
  // `generation` is always the generation of the present route.

  // Pserver `index` reports.
  bool Note(uint32_t index, uint64_t generation, const HostedJob& report);
  // Pserver `index` is lost, and with it the copies that it keeps. Its own copies stay.
  bool Lose(uint32_t index, uint64_t generation);
  // Another process serves the shards of pserver `index`, and every rank has reached it.
  void Return(uint32_t index) { pservers_[index].lost = false; }
  // Names followers again where that is possible.
  bool Advance(uint64_t generation);

  // True when complete copies of every pserver are known.
  bool AllComplete() const;

  enum class Source {
    kNotKnown,    // wait for a report of the follower
    kCopies,      // followers()[index] has them all
    kCheckpoint,  // there are none
  };
  // Says where the successor of the lost pserver `index` finds its shards.
  Source SourceOf(uint32_t index, uint64_t generation) const;
  // Call when the successor must not read copies; the copies become void.
  bool GiveUpCopies(uint32_t index, uint64_t generation);

 private:
  struct Pserver {
    bool lost = false;
    uint64_t generation = 0;    // of the newest report
    uint64_t void_after = 0;    // it has had no follower in routes after this one
    std::set<uint32_t> copies;  // complete ones that it keeps, by primary
  };
  uint32_t Next(uint32_t index) const {
    return (index + 1) % static_cast<uint32_t>(pservers_.size());
  }
  bool SetNone(uint32_t index, uint64_t generation);

  std::vector<uint32_t> followers_;
  std::vector<Pserver> pservers_;
};

}  // namespace sluice

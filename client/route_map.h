// Maps each shard to the link that serves it, according to the latest route.
//
// A link is a number for one pserver at one address; the owner opens a stream for each. A route
// names pservers by index; Apply resolves them to addresses and links, so a process that takes over
// at another address gets its own link. Links are added and never removed: a link's number stays
// valid for the client's life.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/shard_index.h"
#include "common/transport/pserver_address.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// INTERNAL unless `route` fits the job's tables (ValidateRoute).
absl::Status CheckRoute(const ShardIndex& index, const Route& route);

class RouteMap {
 public:
  // `index` outlives the map. No shard may be looked up before the first Apply.
  explicit RouteMap(const ShardIndex* index);

  struct Change {
    bool generation = false;   // it differs from the previous one
    std::vector<bool> moved;   // by flat shard: its link has changed
    std::vector<bool> gained;  // by link: a shard has moved to it
  };
  // Makes `route` the present one.
  // REQUIRES: CheckRoute accepts it.
  Change Apply(const Route& route);

  const Route& route() const { return route_; }
  uint64_t generation() const { return route_.generation(); }
  uint64_t applied() const { return applied_; }  // calls of Apply

  uint32_t links() const { return static_cast<uint32_t>(links_.size()); }
  const PserverAddress& address(uint32_t link) const { return links_[link].to; }
  // True when the present route has a shard at this link.
  bool in_use(uint32_t link) const { return links_[link].pserver != ShardIndex::kNone; }
  // True when the present route says that the link's pserver is lost.
  bool vacant(uint32_t link) const;
  // "pserver 1 at HOST:PORT", for messages.
  std::string Name(uint32_t link) const;

  uint32_t owner(uint32_t flat) const { return owners_[flat]; }  // a link
  const std::vector<uint32_t>& owners() const { return owners_; }

 private:
  struct Link {
    PserverAddress to;
    uint32_t pserver = ShardIndex::kNone;  // its index in the present route
  };
  uint32_t LinkTo(const PserverAddress& to);

  const ShardIndex* const index_;
  Route route_;
  uint64_t applied_ = 0;
  std::vector<Link> links_;
  std::vector<uint32_t> owners_;  // link by flat shard
};

}  // namespace sluice

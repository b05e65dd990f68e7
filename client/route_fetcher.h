// Fetches a newer route when one is wanted, with growing pauses while the scheduler has none.
//
// Thread safety: safe from any thread. Fetch belongs to one thread, and calls get_route without a
// lock held.
//
// Lock order: a leaf. All other calls are cheap and may be made under the owner's lock.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/shard_index.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/retry.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class RouteFetcher {
 public:
  using GetRoute = std::function<absl::StatusOr<Route>()>;

  // `index` and `clock` outlive the fetcher. Without a `get_route` every Fetch fails.
  RouteFetcher(const ShardIndex* index, GetRoute get_route, Clock* clock);

  // Asks for a route. Only a call of get_route that begins later satisfies it.
  void Want();
  bool wanted() const;
  // Returns when to call Fetch; InfiniteFuture while no route is wanted.
  absl::Time due() const;

  // Calls get_route; `generation` is the generation of the present route. Returns a checked route
  // that is not older (it may be the same). UNAVAILABLE when the scheduler gave no answer or an
  // older route; the route is then still wanted. Any other error is final.
  absl::StatusOr<Route> Fetch(uint64_t generation);

 private:
  absl::StatusOr<Route> Ask(uint64_t generation) const;

  const ShardIndex* const index_;
  const GetRoute get_route_;
  Clock* const clock_;

  mutable Mutex mu_;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time not_before_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  Backoff backoff_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice

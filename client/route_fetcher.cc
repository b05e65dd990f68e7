#include "client/route_fetcher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/route_map.h"

namespace sluice {

RouteFetcher::RouteFetcher(const ShardIndex* index, GetRoute get_route, Clock* clock)
    : index_(index), get_route_(std::move(get_route)), clock_(clock) {}

void RouteFetcher::Want() {
  MutexLock lock(&mu_);
  wanted_ = true;
}

bool RouteFetcher::wanted() const {
  MutexLock lock(&mu_);
  return wanted_;
}

absl::Time RouteFetcher::due() const {
  MutexLock lock(&mu_);
  return wanted_ ? not_before_ : absl::InfiniteFuture();
}

absl::StatusOr<Route> RouteFetcher::Fetch(uint64_t generation) {
  {
    // Cleared before the call: a Want during the call needs a later answer.
    MutexLock lock(&mu_);
    wanted_ = false;
  }
  absl::StatusOr<Route> route = Ask(generation);
  MutexLock lock(&mu_);
  if (GotNoAnswer(route.status())) wanted_ = true;
  if (route.ok() && route->generation() > generation) {
    backoff_.Reset();
    not_before_ = absl::InfinitePast();
  } else {
    // The same route again means that the pservers have not adopted it yet.
    not_before_ = clock_->Now() + backoff_.Next();
  }
  return route;
}

absl::StatusOr<Route> RouteFetcher::Ask(uint64_t generation) const {
  if (get_route_ == nullptr) {
    return absl::FailedPreconditionError(
        "a pserver asks for a newer route, and this client has no get_route");
  }
  absl::StatusOr<Route> route = get_route_();
  absl::Status status = route.status();
  if (status.ok()) status = CheckRoute(*index_, *route);
  if (MayBeAnsweredLater(status)) {
    return absl::UnavailableError(absl::StrCat("the scheduler: ", status.message()));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("cannot get a route: ", status.message()));
  }
  // A scheduler that has just taken over may not know the newest route yet.
  if (route->generation() < generation) {
    return absl::UnavailableError(absl::StrCat("the scheduler's route has generation ",
                                               route->generation(), ", older than ", generation));
  }
  return route;
}

}  // namespace sluice

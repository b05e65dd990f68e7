// Routes and streams: the part of ClientCore that runs on its own thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/client_core.h"

namespace sluice {
namespace {

using State = PullOperation::State;

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Seconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

void ClientCore::RunRoutes() {
  while (true) {
    std::vector<PserverLink*> links;
    uint64_t generation;
    bool fetch;
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      woken_ = false;
      generation = route_.generation();
      fetch = route_wanted_ && clock_->Now() >= route_next_ && status_.ok();
      for (size_t l = 0; l < links_.size(); ++l) {
        if (pserver_of_link_[l] != ShardIndex::kNone) links.push_back(links_[l].get());
      }
    }
    if (fetch) {
      FetchRoute();
      continue;
    }
    absl::Time due = absl::InfiniteFuture();
    for (PserverLink* link : links) due = std::min(due, link->ConnectIfDue(generation));
    MutexLock lock(&mu_);
    if (route_wanted_ && status_.ok()) due = std::min(due, route_next_);
    if (woken_ || stopping_) continue;
    if (due == absl::InfiniteFuture()) {
      wake_.Wait(&mu_);
    } else {
      const absl::Duration pause = std::min(due - clock_->Now(), kLook);
      if (pause > absl::ZeroDuration()) wake_.WaitFor(&mu_, absl::ToChronoNanoseconds(pause));
    }
  }
}

void ClientCore::WantRoute(const std::string& why) {
  if (!why.empty()) last_refusal_ = why;
  route_wanted_ = true;
  woken_ = true;
  wake_.NotifyAll();
}

void ClientCore::FetchRoute() {
  {
    // A refusal that comes while the scheduler is asked needs another answer.
    MutexLock lock(&mu_);
    route_wanted_ = false;
  }
  absl::StatusOr<Route> route =
      options_.get_route == nullptr
          ? absl::StatusOr<Route>(absl::FailedPreconditionError(
                "a pserver asks for a newer route, and this client has no get_route"))
          : options_.get_route();
  absl::Status status = route.status();
  if (status.ok()) status = CheckRoute(*route);
  After after;
  {
    MutexLock lock(&mu_);
    const bool newer = status.ok() && route->generation() > route_.generation();
    // The same route again: the pservers are not there yet, so the pause grows.
    route_backoff_ = newer ? absl::ZeroDuration()
                           : std::min(std::max(route_backoff_ * 2, kFirstBackoff), kMaxBackoff);
    route_next_ = clock_->Now() + route_backoff_;
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      WantRoute(absl::StrCat("the scheduler: ", status.message()));
    } else if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat("cannot get a route: ", status.message())));
    } else if (route->generation() < route_.generation()) {
      WantRoute(absl::StrCat("the scheduler's route has generation ", route->generation(),
                             ", older than ", route_.generation()));
    } else {
      const absl::Status applied = ApplyRoute(*route);
      if (!applied.ok()) Fail(applied);
      ++routes_fetched_;
      Pump(&after);
    }
  }
  Changed();
  after.Run();
}

absl::Status ClientCore::CheckRoute(const Route& route) const {
  auto bad = [](absl::string_view what) {
    return absl::InternalError(absl::StrCat("the scheduler's route is wrong: ", what));
  };
  const TableLayouts& tables = index_.tables();
  if (route.tables_size() != static_cast<int>(tables.size())) {
    return bad(absl::StrCat("it has ", route.tables_size(), " tables, the job ", tables.size()));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto& owner = route.tables(t).owner();
    if (owner.size() != static_cast<int>(tables[t]->num_shards())) {
      return bad(absl::StrCat("table '", tables[t]->name(), "' has ", owner.size(),
                              " shards there and ", tables[t]->num_shards(), " in the job"));
    }
    for (uint32_t pserver : owner) {
      if (pserver >= static_cast<uint32_t>(route.pservers_size())) {
        return bad(absl::StrCat("table '", tables[t]->name(), "' has a shard at pserver ", pserver,
                                " of ", route.pservers_size()));
      }
    }
  }
  return absl::OkStatus();
}

uint32_t ClientCore::LinkTo(const std::string& address) {
  for (uint32_t l = 0; l < links_.size(); ++l) {
    if (links_[l]->address() == address) return l;
  }
  PserverLink::Options options;
  options.transport = options_.transport;
  options.clock = clock_;
  options.listener = this;
  options.index = static_cast<uint32_t>(links_.size());
  options.address = address;
  options.hello.set_protocol(kDataProtocol);
  options.hello.set_job_id(options_.job.job_id());
  options.hello.set_rank(options_.rank);
  options.hello.set_incarnation(options_.incarnation);
  options.hello.set_instance(options_.job.instance());
  links_.push_back(std::make_unique<PserverLink>(std::move(options)));
  pserver_of_link_.push_back(ShardIndex::kNone);
  open_.push_back(false);
  return static_cast<uint32_t>(links_.size() - 1);
}

absl::Status ClientCore::ApplyRoute(const Route& route) {
  const bool changed = route.generation() != route_.generation();
  route_ = route;
  std::fill(pserver_of_link_.begin(), pserver_of_link_.end(), ShardIndex::kNone);
  std::vector<uint32_t> link_of(route.pservers_size(), ShardIndex::kNone);
  std::vector<uint32_t> owner(index_.size());
  for (uint32_t flat = 0; flat < index_.size(); ++flat) {
    const uint32_t pserver = route.tables(index_.table_of(flat).id()).owner(index_.shard_of(flat));
    if (link_of[pserver] == ShardIndex::kNone) {
      link_of[pserver] = LinkTo(route.pservers(pserver));
      pserver_of_link_[link_of[pserver]] = pserver;
    }
    owner[flat] = link_of[pserver];
  }
  // What is on its way to an owner of before is asked for again at the new one.
  for (auto& [ticket, op] : operations_) {
    for (PullOperation::Piece& piece : op->pieces) {
      if (piece.state != State::kInFlight || op->exchange) continue;
      if (owner[piece.flat] != owner_[piece.flat])
        piece = {piece.flat, piece.rows, piece.keys, piece.values};
    }
  }
  owner_ = std::move(owner);
  delivery_.OnRoute(owner_);
  RestartOperations(changed);
  woken_ = true;
  wake_.NotifyAll();
  return absl::OkStatus();
}

void ClientCore::RestartOperations(bool changed) {
  for (auto& [ticket, op] : operations_) {
    op->others.resize(links_.size());
    for (PullOperation::Piece& piece : op->pieces) {
      if (piece.state == State::kNeedsRoute) piece.state = State::kNeeded;
    }
    // Under another generation every pserver hears it again: commits and ends of epochs may be
    // repeated.
    if (changed && !op->controls.empty() && !op->Done()) {
      AddControls(op.get());
      continue;
    }
    for (PullOperation::Control& control : op->controls) {
      if (control.state == State::kNeedsRoute) control.state = State::kNeeded;
    }
  }
}

}  // namespace sluice

#include "common/security/connection_gate.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/mutex.h"
#include "common/security/close_hook.h"

namespace sluice {

struct ConnectionGate::State {
  explicit State(const ConnectionBounds& bounds) : places(bounds) {}

  void Closed(int connection) {
    MutexLock lock(&mutex);
    places.Closed(connection);
  }

  Mutex mutex;
  ConnectionPlaces places ABSL_GUARDED_BY(mutex);
};

ConnectionGate::ConnectionGate(const ConnectionBounds& bounds, AuditLog* audit)
    : bounds_(bounds),
      state_(new State(bounds)),
      records_(audit),
      guard_([this](int connection, const sockaddr_storage& peer) {
        return Admits(connection, peer);
      }) {}

ConnectionGate::~ConnectionGate() = default;

void ConnectionGate::Guard(const std::function<void()>& start) { guard_.Guard(start); }

void ConnectionGate::Called(const std::string& address, const std::string& certificate) {
  MutexLock lock(&state_->mutex);
  state_->places.Called(address, certificate);
}

size_t ConnectionGate::open() const {
  MutexLock lock(&state_->mutex);
  return state_->places.open();
}

bool ConnectionGate::Admits(int connection, const sockaddr_storage& peer) {
  const auto end = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  if (!end.has_value()) return true;  // not TCP
  using Outcome = ConnectionPlaces::Outcome;
  ConnectionPlaces::Decision decision;
  {
    MutexLock lock(&state_->mutex);
    // Should a close ever go unnoticed, the descriptor is forgotten when it is used again.
    state_->places.Closed(connection);
    decision = state_->places.Open(connection, *end);
    // Under the lock, which whoever closes the descriptor takes first: it cannot be another file.
    if (decision.given_up.has_value()) shutdown(*decision.given_up, SHUT_RDWR);
  }
  if (decision.given_up.has_value()) {
    Record(decision.peer_given_up, decision.certificate.value_or(""),
           absl::StrCat(decision.certificate.has_value()
                            ? "the owner of its certificate has more than any other"
                            : "it has made no call that was allowed",
                        ", and it was ended to make room for another one"));
  }
  if (decision.outcome != Outcome::kAdmitted) {
    Record(*end, /*certificate=*/"",
           decision.outcome == Outcome::kHostIsFull
               ? absl::StrCat("its host has ", bounds_.max_per_host, " connections already")
               : absl::StrCat("there are ", bounds_.max_open, " connections already"));
    return false;
  }
  const bool watched =
      WatchClose(connection, [state = state_, connection] { state->Closed(connection); });
  // A place that nobody gives back would be lost for ever, so the connection is refused instead.
  if (!watched) state_->Closed(connection);
  return watched;
}

void ConnectionGate::Record(const TcpEnd& peer, const std::string& certificate,
                            const std::string& what) {
  const absl::Status refusal = absl::ResourceExhaustedError(
      absl::StrCat("the connection was closed: ", what,
                   "; find out who opens so many, or raise worker_num or limits.max_streams, from "
                   "which the bounds are derived"));
  AuditedCaller caller = CallerOf(refusal, peer.ToText());
  if (!certificate.empty()) {
    const std::pair<std::string, std::string> role_and_name =
        absl::StrSplit(certificate, absl::MaxSplits(' ', 1));
    std::tie(caller.role, caller.name) = role_and_name;
  }
  records_.Refused(caller, kConnectMethod, RefusalReason::kRoom, std::string(refusal.message()));
}

}  // namespace sluice

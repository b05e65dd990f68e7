#include "common/security/connection_gate.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(10);
constexpr int kEndsATime = 64;

}  // namespace

ConnectionGate::ConnectionGate(const ConnectionBounds& bounds, AuditLog* audit)
    : bounds_(bounds), records_(audit), ends_(epoll_create1(EPOLL_CLOEXEC)), places_(bounds) {}

void ConnectionGate::Called(const std::string& address, const std::string& certificate) {
  MutexLock lock(&mutex_);
  places_.Called(address, certificate);
}

size_t ConnectionGate::open() const {
  MutexLock lock(&mutex_);
  return places_.open();
}

Admission ConnectionGate::Admit(int connection, const TcpEnd& peer) {
  // Before the place: one that nobody gives back would be lost for ever.
  FileDescriptor end(fcntl(connection, F_DUPFD_CLOEXEC, 0));
  struct stat socket = {};
  // The kernel always reports the end of both directions, and once is enough.
  epoll_event on_end = {};
  on_end.events = EPOLLET;
  on_end.data.fd = end.get();
  if (!end || fstat(connection, &socket) != 0 ||
      epoll_ctl(ends_.get(), EPOLL_CTL_ADD, end.get(), &on_end) != 0)
    return Admission::kNoMeans;
  using Outcome = ConnectionPlaces::Outcome;
  const int id = end.get();
  ConnectionPlaces::Decision decision;
  {
    MutexLock lock(&mutex_);
    decision = places_.Open(id, peer);
  }
  if (decision.given_up.has_value()) {
    shutdown(*decision.given_up, SHUT_RDWR);
    Record(decision.peer_given_up, decision.certificate.value_or(""),
           absl::StrCat(decision.certificate.has_value()
                            ? "the owner of its certificate has more than any other"
                            : "it has made no call that was allowed",
                        ", and it was ended to make room for another one"));
  }
  if (decision.outcome != Outcome::kAdmitted) {
    Record(peer, /*certificate=*/"",
           decision.outcome == Outcome::kHostIsFull
               ? absl::StrCat("its host has ", bounds_.max_per_host, " connections already")
               : absl::StrCat("there are ", bounds_.max_open, " connections already"));
    return Admission::kRefused;
  }
  watched_.emplace(id, Watched{std::move(end), connection, socket.st_dev, socket.st_ino});
  return Admission::kAdmitted;
}

absl::Duration ConnectionGate::TakeEnds() {
  epoll_event events[kEndsATime];
  for (int n = kEndsATime; n == kEndsATime;) {
    n = epoll_wait(ends_.get(), events, kEndsATime, 0);
    for (int i = 0; i < n; ++i) ended_.insert(events[i].data.fd);
  }
  for (auto id = ended_.begin(); id != ended_.end();) {
    const auto watched = watched_.find(*id);
    if (watched != watched_.end() && !IsClosed(watched->second)) {
      ++id;
      continue;
    }
    if (watched != watched_.end()) {
      MutexLock lock(&mutex_);
      places_.Closed(*id);
    }
    if (watched != watched_.end()) watched_.erase(watched);
    id = ended_.erase(id);
  }
  return ended_.empty() ? absl::InfiniteDuration() : kLookAgain;
}

void ConnectionGate::Forget() {
  MutexLock lock(&mutex_);
  for (const auto& [id, watched] : watched_) places_.Closed(id);
  watched_.clear();
  ended_.clear();
}

bool ConnectionGate::IsClosed(const Watched& watched) {
  struct stat now = {};
  // While the duplicate is open, no other socket has this inode.
  return fstat(watched.connection, &now) != 0 || now.st_dev != watched.device ||
         now.st_ino != watched.inode;
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

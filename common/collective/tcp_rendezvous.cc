#include "common/collective/tcp_rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"

namespace sluice {
namespace {

constexpr char kMagic[] = "sluice-g";
// How soon a cancelled wait ends.
constexpr absl::Duration kTcpTick = absl::Milliseconds(10);
constexpr int64_t kMaxKeepaliveSeconds = 32767;  // Linux refuses more

struct Resolved {
  sockaddr_storage address = {};
  socklen_t length = 0;
  int family() const { return address.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

absl::StatusOr<Resolved> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(host, ": ", gai_strerror(error)));
  // The first address is the preferred one (RFC 6724).
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Resolved resolved;
  std::memcpy(&resolved.address, found->ai_addr, found->ai_addrlen);
  resolved.length = found->ai_addrlen;
  return resolved;
}

FileDescriptor OpenTcpSocket(const Resolved& address) {
  return FileDescriptor(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Has the connection break once the other host has acknowledged nothing for so long, whether this
// side sends (TCP_USER_TIMEOUT) or only waits (keepalive probes). Linux also breaks it when the
// other process has read nothing for so long, although its host acknowledges.
void BreakWhenSilent(int fd, absl::Duration silence) {
  const auto set = [fd](int level, int option, int64_t value) {
    const int number = static_cast<int>(std::clamp<int64_t>(value, 1, INT_MAX));
    setsockopt(fd, level, option, &number, sizeof(number));
  };
  const int64_t seconds = absl::ToInt64Seconds(silence);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::min<int64_t>(seconds / 2, kMaxKeepaliveSeconds));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::min<int64_t>(seconds / 6, kMaxKeepaliveSeconds));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, absl::ToInt64Milliseconds(silence));
}

bool NothingYet(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

absl::StatusOr<std::string> TcpRendezvous::Listen() {
  cancelled_.store(false, std::memory_order_relaxed);
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the collective cannot listen at ", options_.bind_address, ": ", why));
  };
  // Port 0: the kernel draws one. Fixed ports would collide between jobs of one host.
  absl::StatusOr<Resolved> address = Resolve(options_.bind_address, 0, AI_PASSIVE);
  if (!address.ok()) return refuse(std::string(address.status().message()));
  listener_ = OpenTcpSocket(*address);
  if (!listener_ || bind(listener_.get(), address->get(), address->length) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0) {
    const std::string why = std::strerror(errno);
    Leave();
    return refuse(why);
  }
  // The card says what was bound, because bind_address may be a name.
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&bound), length, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    Leave();
    return refuse("its port is not known");
  }
  return bound.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port)
                                     : absl::StrCat(host, ":", port);
}

absl::StatusOr<std::vector<FileDescriptor>> TcpRendezvous::Join(
    const CollectiveCard& own, const std::vector<CollectiveCard>& cards) {
  own_ = own;
  cards_ = cards;
  self_ = 0;
  while (cards[self_].rank() != own_.rank()) ++self_;
  Connections connections(cards.size());
  // As in ShmRendezvous: the lower place accepts, so that no two ranks wait for each other.
  for (uint32_t place = 0; place < self_; ++place)
    SLUICE_RETURN_IF_ERROR(ConnectTo(place, &connections));
  SLUICE_RETURN_IF_ERROR(AcceptHigherPlaces(&connections));
  Leave();
  return connections;
}

void TcpRendezvous::Restart(absl::Duration timeout) {
  deadline_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

absl::Status TcpRendezvous::Failed(GroupFault::Kind kind, uint32_t place) const {
  const uint32_t self = own_.rank();
  return ErrorOf({kind, cards_[place].rank(), self}, self, "joining the group", options_);
}

absl::Status TcpRendezvous::Unreachable(int error, uint32_t place) const {
  const CollectiveCard& card = cards_[place];
  const absl::StatusOr<Address> address = ParseAddress(card.address());
  // A loopback address leads to some process of this host, and the error of the connection would
  // say nothing about the cause.
  if (address.ok() && IsLoopback(address->host) && !ShareLoopback(card.host(), own_.host())) {
    return AtFault(
        place,
        absl::UnavailableError(absl::StrCat(
            "rank ", card.rank(), " gives its address as ", card.address(),
            ", which other hosts cannot reach: its worker resolves the name of the scheduler to a "
            "loopback address; start it with a --scheduler address that other hosts can reach")));
  }
  // The host answers, and nobody listens: ports are drawn for each generation, so the rank has
  // gone.
  if (error == ECONNREFUSED || error == ECONNRESET || error == EPIPE)
    return Failed(GroupFault::kEnded, place);
  return AtFault(place, absl::UnavailableError(absl::StrCat(
                            "rank ", card.rank(), " cannot be reached at ", card.address(), ": ",
                            std::strerror(error),
                            "; the hosts of the workers must reach each other at all ports")));
}

absl::Status TcpRendezvous::AtFault(uint32_t place, absl::Status status) const {
  status.SetPayload(kRankAtFaultPayload, absl::Cord(absl::StrCat(cards_[place].rank())));
  return status;
}

absl::Status TcpRendezvous::WaitFor(const std::vector<int>& descriptors, int16_t events,
                                    uint32_t place) {
  if (cancelled_.load(std::memory_order_relaxed))
    return absl::CancelledError("joining the group was cancelled");
  if (std::chrono::steady_clock::now() >= deadline_) return Failed(GroupFault::kSilent, place);
  std::vector<pollfd> states;
  for (const int fd : descriptors) states.push_back({fd, events, 0});
  poll(states.data(), states.size(), static_cast<int>(absl::ToInt64Milliseconds(kTcpTick)));
  return absl::OkStatus();
}

TcpRendezvous::Greeting TcpRendezvous::GreetingTo(const CollectiveCard& receiver) const {
  static_assert(sizeof(Greeting) == 40);
  Greeting greeting = {};
  std::memcpy(greeting.magic, kMagic, sizeof(greeting.magic));
  greeting.generation = own_.generation();
  greeting.from = own_.rank();
  greeting.to = receiver.rank();
  // Only whoever got the receiver's card from the scheduler knows it.
  receiver.nonce().copy(greeting.nonce, sizeof(greeting.nonce));
  return greeting;
}

absl::Status TcpRendezvous::ConnectTo(uint32_t place, Connections* connections) {
  const CollectiveCard& card = cards_[place];
  const absl::StatusOr<Address> address = ParseAddress(card.address());
  absl::StatusOr<Resolved> resolved = absl::InvalidArgumentError("no address");
  if (address.ok()) resolved = Resolve(address->host, address->port, AI_NUMERICHOST);
  if (!resolved.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the card of rank ", card.rank(), " has no address of Gloo"));
  }
  // The kernel of a host that can be reached answers at once, even when the rank is busy.
  Restart(options_.network_timeout);
  FileDescriptor fd = OpenTcpSocket(*resolved);
  if (!fd) return absl::ErrnoToStatus(errno, "a connection between ranks: socket");
  BreakWhenSilent(fd.get(), options_.network_timeout);
  if (connect(fd.get(), resolved->get(), resolved->length) != 0 && errno != EINPROGRESS)
    return Unreachable(errno, place);
  const Greeting greeting = GreetingTo(card);
  while (true) {
    const ssize_t sent = send(fd.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL);
    if (sent == sizeof(greeting)) break;
    // Not connected yet. The first bytes of a connection are sent whole or not at all.
    if (sent >= 0 || !(NothingYet(errno) || errno == ENOTCONN)) return Unreachable(errno, place);
    if (std::chrono::steady_clock::now() >= deadline_) return Unreachable(ETIMEDOUT, place);
    SLUICE_RETURN_IF_ERROR(WaitFor({fd.get()}, POLLOUT, place));
  }
  // The other side must know the secret of this rank's card, too: a process that took over the port
  // does not.
  Greeting answer, expected = GreetingTo(own_);
  expected.from = card.rank();
  Restart(options_.timeout);
  for (size_t got = 0; got < sizeof(answer);) {
    SLUICE_RETURN_IF_ERROR(WaitFor({fd.get()}, POLLIN, place));
    const ssize_t size =
        recv(fd.get(), reinterpret_cast<char*>(&answer) + got, sizeof(answer) - got, 0);
    // A rank that has turned this one away closes, too: it then waits for another generation.
    if (size == 0) return Failed(GroupFault::kEnded, place);
    if (size < 0 && !NothingYet(errno)) return Unreachable(errno, place);
    if (size > 0) got += static_cast<size_t>(size);
  }
  if (std::memcmp(&answer, &expected, sizeof(answer)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a process that is not rank ", card.rank(),
                                                   " of generation ", own_.generation(),
                                                   " answers at ", card.address()));
  }
  (*connections)[place] = std::move(fd);
  return absl::OkStatus();
}

absl::Status TcpRendezvous::AcceptHigherPlaces(Connections* connections) {
  // A silent stranger delays nobody.
  std::vector<Stranger> strangers;
  Restart(options_.timeout);
  size_t missing_before = 0;
  while (true) {
    std::vector<uint32_t> missing;
    for (uint32_t place = self_ + 1; place < cards_.size(); ++place)
      if (!(*connections)[place]) missing.push_back(place);
    if (missing.empty()) return absl::OkStatus();
    // A rank that comes is progress; a stranger is not.
    if (missing.size() != missing_before) Restart(options_.timeout);
    missing_before = missing.size();
    std::vector<int> descriptors = {listener_.get()};
    for (const Stranger& stranger : strangers) descriptors.push_back(stranger.connection.get());
    SLUICE_RETURN_IF_ERROR(WaitFor(descriptors, POLLIN, missing[0]));
    Accept(&strangers);
    for (size_t i = 0; i < strangers.size();) {
      if (Hear(&strangers[i], connections)) {
        ++i;
      } else {
        strangers.erase(strangers.begin() + i);
      }
    }
    // Those that have greeted are no longer among them.
    if (strangers.size() > kMaxStrangers) strangers.erase(strangers.begin());
  }
}

void TcpRendezvous::Accept(std::vector<Stranger>* strangers) {
  FileDescriptor accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted) {
    BreakWhenSilent(accepted.get(), options_.network_timeout);
    strangers->emplace_back();
    strangers->back().connection = std::move(accepted);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    // Without a descriptor no rank gets in: the oldest stranger goes.
    if (!strangers->empty()) strangers->erase(strangers->begin());
    // The connection still waits, so that a poll would return at once.
    poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(kTcpTick)));
  }
}

bool TcpRendezvous::Hear(Stranger* stranger, Connections* connections) {
  const int fd = stranger->connection.get();
  Greeting& greeting = stranger->greeting;
  const ssize_t size = recv(fd, reinterpret_cast<char*>(&greeting) + stranger->bytes,
                            sizeof(greeting) - stranger->bytes, 0);
  if (size < 0) return NothingYet(errno);
  stranger->bytes += static_cast<size_t>(size);
  if (size == 0) return false;
  if (stranger->bytes < sizeof(greeting)) return true;
  for (uint32_t place = self_ + 1; place < cards_.size(); ++place) {
    Greeting expected = GreetingTo(own_);
    expected.from = cards_[place].rank();
    // A place is taken once: a replayed greeting cannot replace a connection that stands.
    if ((*connections)[place] || std::memcmp(&greeting, &expected, sizeof(greeting)) != 0) continue;
    const Greeting answer = GreetingTo(cards_[place]);
    if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer))
      (*connections)[place] = std::move(stranger->connection);
    return false;
  }
  return false;
}

}  // namespace sluice

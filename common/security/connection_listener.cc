#include "common/security/connection_listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/security/audit_log.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(5);
// Between two looks at the other sockets of the thread.
constexpr int kAcceptsATurn = 64;
// A free port of one address may be taken at another one of the same host.
constexpr int kPortsTried = 16;

bool LacksDescriptor(int error) { return error == EMFILE || error == ENFILE; }

// The connection is gone from the queue, and the next one may be well.
bool ConcernsOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

int PortOf(int listener) {
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  const auto end = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&own), size);
  return end.has_value() ? end->port : 0;
}

// Listens at `port` of the address, whatever port that names. *error: errno of a failure.
FileDescriptor ListenAt(const sockaddr* address, socklen_t size, int port, int* error) {
  sockaddr_storage at = {};
  std::memcpy(&at, address, size);
  // sin6_port lies at the same place.
  reinterpret_cast<sockaddr_in*>(&at)->sin_port = htons(static_cast<uint16_t>(port));
  FileDescriptor fd(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  // Connections take the options over.
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
      (address->sa_family == AF_INET6 &&
       setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    *error = errno;
    return FileDescriptor();
  }
  return fd;
}

struct SocketAddress {
  sockaddr_storage address = {};
  socklen_t size = 0;
};

// The addresses of the host. Both wildcards come as that of IPv6, which also takes IPv4.
absl::StatusOr<std::vector<SocketAddress>> AddressesOf(const std::string& host) {
  const bool any = host.empty() || host == "0.0.0.0" || host == "::";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(any ? "::" : host.c_str(), "0", &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  std::vector<SocketAddress> addresses;
  std::set<std::string> known;  // a name may list an address twice
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const auto end = TcpEnd::Of(info->ai_addr, info->ai_addrlen);
    if (!end.has_value() || !known.insert(end->address).second) continue;
    SocketAddress& added = addresses.emplace_back();
    std::memcpy(&added.address, info->ai_addr, info->ai_addrlen);
    added.size = info->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

SocketAddress AnyOfIpv4() {
  SocketAddress any;
  any.address.ss_family = AF_INET;
  any.size = sizeof(sockaddr_in);
  return any;
}

bool IsAny(const SocketAddress& at) {
  return at.address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&at.address)->sin6_addr);
}

}  // namespace

ConnectionListener::ConnectionListener(Options options)
    : options_(std::move(options)),
      users_(options_.users),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      log_(Clock::Real(), LimitedLog::Limits(), options_.log) {
  if (options_.bounds.has_value()) places_.emplace(*options_.bounds, options_.users.audit);
  FillReserve();
}

absl::StatusOr<std::unique_ptr<ConnectionListener>> ConnectionListener::Listen(Options options) {
  std::unique_ptr<ConnectionListener> listener(new ConnectionListener(std::move(options)));
  const absl::Status bound = listener->Bind();
  if (!bound.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listener->options_.users.address, ": ", bound.message()));
  }
  return listener;
}

ConnectionListener::~ConnectionListener() { Stop(); }

absl::Status ConnectionListener::Bind() {
  // Before the listeners: a thread without it could not be stopped.
  if (!stop_) return absl::ErrnoToStatus(errno, "no file descriptor is left");
  if (places_.has_value() && !places_->watches())
    return absl::UnavailableError("no file descriptor is left");
  SLUICE_ASSIGN_OR_RETURN(const Address address, ParseAddress(options_.users.address));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, AddressesOf(address.host));
  int error = EADDRNOTAVAIL;
  for (int tries = 0; tries < kPortsTried; ++tries) {
    listeners_.clear();
    port_ = address.port;
    bool taken = false;
    for (const SocketAddress& at : addresses) {
      FileDescriptor fd =
          ListenAt(reinterpret_cast<const sockaddr*>(&at.address), at.size, port_, &error);
      if (!fd && IsAny(at) && error != EADDRINUSE) {  // without IPv6
        const SocketAddress any = AnyOfIpv4();
        fd = ListenAt(reinterpret_cast<const sockaddr*>(&any.address), any.size, port_, &error);
      }
      if (fd) {
        port_ = PortOf(fd.get());
        listeners_.push_back(std::move(fd));
      } else if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) {
        // A name may also have an address that this host lacks, such as ::1.
        taken = true;
        break;
      }
    }
    if (!taken && !listeners_.empty()) return absl::OkStatus();
    if (address.port != 0 || error != EADDRINUSE) break;
  }
  listeners_.clear();
  return absl::UnavailableError(std::strerror(error));
}

void ConnectionListener::SetUserTimeout(absl::Duration timeout) {
  const int ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  for (const FileDescriptor& listener : listeners_)
    setsockopt(listener.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

void ConnectionListener::Start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionListener::Stop() {
  const uint64_t one = 1;
  if (thread_.joinable()) {
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  listeners_.clear();
  if (places_.has_value()) places_->Forget();
}

void ConnectionListener::Called(const std::string& address, const std::string& certificate) {
  if (places_.has_value()) places_->Called(address, certificate);
}

size_t ConnectionListener::open() const { return places_.has_value() ? places_->open() : 0; }

void ConnectionListener::Run() {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  if (places_.has_value()) polled.push_back({places_->ends(), POLLIN, 0});
  const size_t first = polled.size();
  for (const FileDescriptor& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  for (;;) {
    const absl::Duration wait =
        places_.has_value() ? places_->TakeEnds() : absl::InfiniteDuration();
    const bool ever = wait == absl::InfiniteDuration();
    poll(polled.data(), polled.size(),
         ever ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait)));
    if (polled[0].revents != 0) return;
    bool works = true;
    for (size_t i = first; i < polled.size(); ++i) {
      if (polled[i].revents != 0) works = AcceptFrom(polled[i].fd) && works;
    }
    if (!works) Clock::Real()->Sleep(kRetry);
  }
}

bool ConnectionListener::AcceptFrom(int listener) {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    FileDescriptor connection(
        accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      Decide(std::move(connection), from);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (LacksDescriptor(errno)) {
      // The kernel looks for a descriptor before it looks for a connection.
      pollfd waiting = {listener, POLLIN, 0};
      if (poll(&waiting, 1, 0) <= 0) return true;
      if (!DropOne(listener)) return false;
    } else if (!ConcernsOneConnection(errno)) {
      return false;
    }
  }
  return true;
}

void ConnectionListener::Decide(FileDescriptor connection, const sockaddr_storage& from) {
  const auto peer = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&from), sizeof(from));
  if (!peer.has_value()) return;
  Admission admission = users_.Admit(connection.get(), *peer);
  if (admission == Admission::kAdmitted && places_.has_value())
    admission = places_->Admit(connection.get(), *peer);
  if (admission == Admission::kAdmitted) {
    take_(std::move(connection), *peer);
  } else if (admission == Admission::kNoMeans) {
    ReportDropped(from);
  }
}

bool ConnectionListener::DropOne(int listener) {
  FillReserve();
  bool taken = false;
  for (FileDescriptor& kept : reserve_) {
    if (!kept) continue;
    kept = FileDescriptor();
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    const FileDescriptor connection(
        accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    taken = connection || !LacksDescriptor(errno);
    if (connection) ReportDropped(from);
    if (taken) break;
  }
  FillReserve();
  return taken;
}

void ConnectionListener::ReportDropped(const sockaddr_storage& from) {
  const uint64_t dropped = dropped_.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto peer = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&from), sizeof(from));
  const absl::Status why = absl::ResourceExhaustedError(
      "the connection was closed: this process has no file descriptor or epoll watch left for it; "
      "raise LimitNOFILE (ulimit -Hn), or find out who opens so many");
  AuditLog* const audit = options_.users.audit;
  const AuditedCaller caller = CallerOf(why, peer.has_value() ? peer->ToText() : "");
  const bool added = reports_.Add([this, audit, caller, why, dropped] {
    if (audit != nullptr)
      audit->Refused(caller, kConnectMethod, RefusalReason::kRoom, why.message());
    log_.Say(absl::StrCat(options_.users.address, ": ", caller.address, ": ", why.message(), "; ",
                          dropped, " so far"));
  });
  if (!added && audit != nullptr) audit->LeftOut(caller, kConnectMethod, RefusalReason::kRoom);
}

void ConnectionListener::FillReserve() {
  for (FileDescriptor& kept : reserve_) {
    if (!kept) kept = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
}

}  // namespace sluice

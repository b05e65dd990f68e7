#include "common/security/accept_reserve.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/security/listener_guard.h"
#include "common/security/system_calls.h"

namespace sluice {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(5);
// A thread that accepts may also be the one that closes connections, so it must not wait for ever.
constexpr int kMaxPauses = 20;

bool NoDescriptor(int error) { return error == EMFILE || error == ENFILE; }
bool NoMemory(int error) { return error == ENOBUFS || error == ENOMEM; }
// The connection is gone from the queue, and the next one may be well.
bool OfOneConnection(int error) {
  switch (error) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

class Reserve {
 public:
  // Never destroyed: listeners may outlive the end of main.
  static Reserve& OfProcess() {
    static Reserve& reserve = *new Reserve;
    return reserve;
  }

  void Open() {
    MutexLock lock(&mutex_);
    OpenLocked();
  }

  // Closes the oldest connection that waits at the listener. False when there is no descriptor for
  // that either. Another thread may take one that is given up here, so there are several.
  bool DropOne(int listener) {
    MutexLock lock(&mutex_);
    OpenLocked();
    bool taken = false;
    for (int& fd : fds_) {
      if (fd < 0) continue;
      close(fd);
      fd = -1;
      const int connection = SystemAccept(listener, nullptr, nullptr, SOCK_CLOEXEC);
      taken = connection >= 0 || !NoDescriptor(errno);
      if (connection >= 0) {
        close(connection);
        dropped_.fetch_add(1, std::memory_order_relaxed);
      }
      if (taken) break;
    }
    OpenLocked();
    return taken;
  }

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  void OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int& fd : fds_) {
      if (fd < 0) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
  }

  Mutex mutex_;
  std::array<int, 8> fds_ ABSL_GUARDED_BY(mutex_) = {-1, -1, -1, -1, -1, -1, -1, -1};
  std::atomic<uint64_t> dropped_{0};  // relaxed: a count
};

// Waits up to `wait_ms` (-1: for ever) for a connection.
bool HasConnection(int listener, int wait_ms) {
  pollfd waiting = {listener, POLLIN, 0};
  return poll(&waiting, 1, wait_ms) > 0;
}

bool IsListener(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

// Gives the caller of accept the address that it asks for, as accept(2) says.
void CopyAddress(const sockaddr_storage& from, socklen_t from_size, sockaddr* to, socklen_t* size) {
  if (to == nullptr || size == nullptr) return;
  std::memcpy(to, &from, std::min({*size, from_size, static_cast<socklen_t>(sizeof(from))}));
  *size = from_size;
}

bool Blocks(int listener) { return (fcntl(listener, F_GETFL) & O_NONBLOCK) == 0; }

int Accept(int listener, sockaddr* peer, socklen_t* size, int flags) {
  for (int pauses = 0;;) {
    sockaddr_storage from = {};
    socklen_t from_size = sizeof(from);
    const int connection =
        SystemAccept(listener, reinterpret_cast<sockaddr*>(&from), &from_size, flags);
    if (connection >= 0) {
      if (ListenerGuard::Admits(listener, connection, from)) {
        CopyAddress(from, from_size, peer, size);
        return connection;
      }
      close(connection);
      continue;
    }
    const int error = errno;
    if (NoDescriptor(error) && IsListener(listener)) {
      // The kernel looks for a descriptor before it looks for a connection.
      if (!HasConnection(listener, 0)) {
        if (!Blocks(listener)) {
          errno = EAGAIN;
          return -1;
        }
        HasConnection(listener, -1);  // there may be a descriptor by then
        continue;
      }
      if (Reserve::OfProcess().DropOne(listener)) continue;
      if (++pauses > kMaxPauses && !Blocks(listener)) {
        errno = EAGAIN;
        return -1;
      }
      Clock::Real()->Sleep(kPause);
    } else if (NoMemory(error)) {
      Clock::Real()->Sleep(kPause);
    } else if (!OfOneConnection(error)) {
      errno = error;
      return connection;
    }
  }
}

}  // namespace

void KeepAcceptReserve() { Reserve::OfProcess().Open(); }

uint64_t ConnectionsDropped() { return Reserve::OfProcess().dropped(); }

}  // namespace sluice

// The linker resolves the calls of shared libraries to these, because a program comes before its
// libraries.
extern "C" {

__attribute__((visibility("default"))) int accept4(int listener, sockaddr* peer, socklen_t* size,
                                                   int flags) {
  return sluice::Accept(listener, peer, size, flags);
}

__attribute__((visibility("default"))) int listen(int socket, int backlog) {
  sluice::ListenerGuard::NoteListener(socket);
  return sluice::SystemListen(socket, backlog);
}

__attribute__((visibility("default"))) int accept(int listener, sockaddr* peer, socklen_t* size) {
  return sluice::Accept(listener, peer, size, 0);
}

}  // extern "C"

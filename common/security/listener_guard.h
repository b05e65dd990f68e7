// Lets a server look at each of its connections before anybody reads a byte of it.
//
// A server's library makes its listeners itself and does not show them. But accept_reserve.h
// defines listen, accept and accept4 for the whole process, and they call the functions at the end
// of the class. A listener belongs to the guards whose Guard runs on the thread that calls listen,
// from its first connection on. Connections that the check of a guard refuses are closed, and
// accept takes the next one. When calls of Guard are nested, the guard of the innermost one checks
// first.
//
// A listener that outlives one of its guards admits nobody.
//
// Thread safety: safe from any thread. The check runs on the threads that accept, several at once.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>

namespace sluice {

class ListenerGuard {
 public:
  // Whether the connection may stay. `peer`: its other end, which the system may have forgotten
  // when it has gone meanwhile. Must be quick, and must not wait.
  using Check = std::function<bool(int connection, const sockaddr_storage& peer)>;

  explicit ListenerGuard(Check check);
  // Waits until the check has returned everywhere.
  ~ListenerGuard();
  ListenerGuard(const ListenerGuard&) = delete;
  ListenerGuard& operator=(const ListenerGuard&) = delete;

  // Calls `start` on this thread. Returns how many listeners it has opened.
  int Guard(const std::function<void()>& start);

  // A socket begins to listen.
  static void NoteListener(int socket);
  // Whether all guards of the listener admit the connection.
  static bool Admits(int listener, int connection, const sockaddr_storage& peer);

 private:
  friend class GuardedListeners;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sluice

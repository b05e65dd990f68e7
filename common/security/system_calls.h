// The system calls under the functions that accept_reserve.cc and close_hook.cc define in front of
// those of the C library.
//
// The thread sanitizer defines these functions too, to know each descriptor from its opening to its
// close. Under it, the calls below go through the sanitizer's functions. A close that it does not
// see would join the descriptor with all later ones of the same number, and it would report races
// between their users.
//
// Thread safety: safe from any thread.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
extern "C" {
int __interceptor_accept4(int listener, sockaddr* peer, socklen_t* size, int flags);
int __interceptor_close(int fd);
int __interceptor_listen(int socket, int backlog);
}
#endif

namespace sluice {

#ifdef __SANITIZE_THREAD__

inline int SystemAccept(int listener, sockaddr* peer, socklen_t* size, int flags) {
  return __interceptor_accept4(listener, peer, size, flags);
}
inline int SystemClose(int fd) { return __interceptor_close(fd); }
inline int SystemListen(int socket, int backlog) { return __interceptor_listen(socket, backlog); }

#else

inline int SystemAccept(int listener, sockaddr* peer, socklen_t* size, int flags) {
  return static_cast<int>(syscall(SYS_accept4, listener, peer, size, flags));
}
inline int SystemClose(int fd) { return static_cast<int>(syscall(SYS_close, fd)); }
inline int SystemListen(int socket, int backlog) {
  return static_cast<int>(syscall(SYS_listen, socket, backlog));
}

#endif

}  // namespace sluice

// Says which user is at the server's end of a connection on this host.
//
// A process calls a server on loopback only when the server belongs to its own user or to root.
// Otherwise any user who binds the port while it is free could play the scheduler or a pserver.
//
// How the owner of the server's end is known:
// - A connection that the server has accepted has an inode, and belongs to the one who did that.
//   Kernels up to 6.16 read the user before the inode, so a connection that is accepted in between
//   seems to be root's. Two equal answers rule this out.
// - Until then it waits in the queue of a listener and has no inode. Its listener's user owns it:
//   nobody else can accept it. A listener that closes takes the connections of its queue with it,
//   and moves them only to listeners of the same user (SO_REUSEPORT). So the connection must be
//   in the queue both before and after the listeners are looked up: its own was then among them.
//   The kernel lets several sockets listen at overlapping addresses of a port only for one user. An
//   exception are sockets that are bound to different devices, and daemons bind to none.
// - A connection whose handshake does not end at the server is refused after 20 ms: the queue is
//   full, the server defers the end (TCP_DEFER_ACCEPT), or the kernel keeps nothing of it (SYN
//   cookies). Such a connection outlives its listener, and may go to another one.
//
// Thread safety: free functions, safe from any thread.
// Source: inet_csk_listen_stop, inet_csk_bind_conflict and tcp_v4_rcv in Linux.
#pragma once

#include <sys/types.h>

#include "absl/status/status.h"
#include "common/config/address.h"
#include "common/security/local_sockets.h"

namespace sluice {

// OK: `user` or root has the other end of `connection`, an established one to this host.
// PERMISSION_DENIED: another user has it. UNAVAILABLE: the server's end is not there (yet, any
// more), or this process has no descriptor left with which to ask.
absl::Status CheckServerOf(int connection, uid_t user);
absl::Status CheckServerOf(int connection, uid_t user, LocalSockets::Source source);

// PERMISSION_DENIED, with the address and the fix: another user listens at this address of
// loopback.
absl::Status CheckListenersAt(const Address& address, uid_t user);

}  // namespace sluice

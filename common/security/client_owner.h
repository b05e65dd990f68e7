// Says which user is at the client's end of a connection that a server on this host has accepted.
//
// Without TLS, a connection to a loopback address comes from some process of this host. The kernel
// knows which user made its socket, so that daemons can keep other users of the host out without
// any secret.
//
// The answer is about the process that opened the connection, and no other, even if its user breaks
// the connection at once and lets somebody else take over the port:
//
// 1. The kernel is asked for a socket with exactly the mirrored addresses and ports that is
//    ESTABLISHED and belongs to a process (has an inode). Without the inode, kernels before 6.16
//    report root for a socket that is being closed.
// 2. Afterwards our own end must still be ESTABLISHED. It then was at the time of step 1, because
//    no socket returns to this state. While it was, a new socket with the ports of the other end
//    could not become ESTABLISHED: its SYN reaches our end, which does not answer it with a SYN,
//    and the port of our listener cannot be bound by others. So step 1 has found the other end.
// 3. The kernel takes a socket out of its tables just before it changes the state. Both happen
//    under the lock of the socket, which TCP_INFO takes after it has read the state. Therefore the
//    state is read twice, and the second answer counts.
//
// Thread safety: free functions, safe from any thread.
// Source: RFC 9293, 3.10.7.4, and RFC 5961, 4 (a SYN in ESTABLISHED); tcp_set_state and
// tcp_get_info in net/ipv4/tcp.c of Linux.
#pragma once

#include <sys/types.h>

#include <functional>

#include "absl/status/statusor.h"
#include "common/security/local_sockets.h"

namespace sluice {

// Takes microseconds. The tables of /proc are read only where the kernel has no socket diagnostics,
// so clients that have gone cannot make a server read them.
// NOT_FOUND: the client has gone. UNAVAILABLE: this process has no descriptor left with which to
// ask. UNKNOWN: the kernel does not say, or no process has the client's end any more.
absl::StatusOr<uid_t> OwnerOfClient(int connection);
// The same from one source alone. Calls `before` once it has read the addresses.
absl::StatusOr<uid_t> OwnerOfClientForTest(int connection, LocalSockets::Source source,
                                           const std::function<void()>& before);

}  // namespace sluice

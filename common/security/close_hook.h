// Tells when this process closes a descriptor that somebody else owns.
//
// gRPC owns the sockets of its connections and tells nobody when it closes one. So this file
// defines close for the whole process, the libraries included, in front of that of the C library,
// as accept_reserve.h does with accept.
//
// Cost: closing a descriptor that nobody watches reads one byte more. The C library's own calls,
// such as that in fclose, do not come here; they close no sockets.
//
// Thread safety: safe from any thread. Takes no lock for descriptors that nobody watches, so a
// child of fork may close those.
#pragma once

#include <functional>

namespace sluice {

// Calls `on_close` once, on the thread that closes `fd` and just before the system closes it: until
// `on_close` returns, `fd` stands for the same file. It must not watch or close descriptors.
// REQUIRES: `fd` is open, nobody watches it, and nobody else can close it yet.
// False: the number is beyond those that can be watched.
bool WatchClose(int fd, std::function<void()> on_close);

}  // namespace sluice

// Keeps listeners alive when this process has no file descriptor left for another connection.
//
// gRPC 1.51 stops a listener for ever when accept4 fails (CVE-2023-4785, fixed in gRPC 1.53.2).
// cpp-httplib also stops its listener after most errors. Whoever can open connections could so
// silence a port until the process restarts. Therefore this file defines accept and accept4 for the
// whole process, the libraries included, in front of those of the C library:
//
// - Without a descriptor (EMFILE, ENFILE) they give up one that was kept for this, accept the
//   connection, close it, and go on. The peer sees that its connection ends, and may try again. The
//   queue of the listener empties, so that the connections that come later are noticed. Eight are
//   kept, because other threads may take one that is given up. Should all be lost, a listener that
//   does not block returns EAGAIN after 0.1 s, as if nobody waited, so that the thread can close
//   connections; those that wait are taken with the next that comes.
// - Without memory for a socket (ENOBUFS, ENOMEM) they wait a moment and try again.
// - Errors of one connection that has broken meanwhile (ECONNABORTED, EPROTO, ...) are skipped, as
//   accept(2) advises.
// - A connection that the guard of its listener refuses is closed, and skipped too. This file also
//   defines listen, so that the guard knows its listeners (listener_guard.h).
//
// All other errors are returned.
//
// Thread safety: safe from any thread.
// Source: accept(2), "Error handling".
#pragma once

#include <cstdint>

namespace sluice {

// Opens the descriptors that are kept. Call it before a server listens; later calls do nothing. It
// also makes sure that a program links the functions above.
void KeepAcceptReserve();

// Connections that were closed because there was no descriptor for them, since the process began.
uint64_t ConnectionsDropped();

}  // namespace sluice

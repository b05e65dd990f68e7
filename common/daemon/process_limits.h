// The system's limits on the threads and files of this process, and how its compute threads wait.
//
// Thread safety: UsePassiveThreads is for main, before other threads start. The others are safe
// from any thread.
#pragma once

#include "absl/status/status.h"

namespace sluice {

// Makes compute threads sleep, not spin, while they wait for one another. By default libgomp spins.
// That is fast while each thread has its own core. Once several processes share the cores, it
// makes everything many times slower. libgomp reads its settings when it is loaded, before main.
//
// Call it first in main, with main's argv. When OMP_WAIT_POLICY is not set, sets it to passive and
// executes the program again in this process, under the same name and pid. Where that fails, the
// program continues as it is and is slower at worst.
void UsePassiveThreads(char** argv);

// The threads that a daemon needs for a small job.
inline constexpr int kThreadsOfADaemon = 20;
// The check tries at most this many, because each try takes time.
inline constexpr int kMostThreadsTried = 1024;

// A library that cannot start a thread may hang or abort. This check gives an error that names the
// limit instead: it starts `threads` threads that live at the same time, then ends them.
// RESOURCE_EXHAUSTED: the system refused one; the message names the limits that can be the reason.
absl::Status CheckThreadLimit(int threads);

// Raises the limit of open files as far as the system allows (from 1024 on most). Every connection
// is a file, and one to a gRPC port is two. Beyond the limit, servers close new connections
// (common/security/connection_listener.h).
void RaiseFileLimit();

}  // namespace sluice

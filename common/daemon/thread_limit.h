// Checks that this process can start as many threads as it will need.
//
// A library that cannot start a thread may hang or abort. This check gives an error that names the
// limit instead.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include "absl/status/status.h"

namespace sluice {

// The threads that a daemon needs for a small job.
inline constexpr int kThreadsOfADaemon = 20;
// The check tries at most this many, because each try takes time.
inline constexpr int kMostThreadsTried = 1024;

// Starts `threads` threads that live at the same time, then ends them. RESOURCE_EXHAUSTED: the
// system refused one; the message names the limits that can be the reason.
absl::Status CheckThreadLimit(int threads);

}  // namespace sluice

// Whether this process may start as many threads as it is going to need.
//
// A library that cannot start a thread may wait for it for ever, or abort. Asking first gives an
// error that names the limit instead.
//
// Thread safety: safe.
#pragma once

#include "absl/status/status.h"

namespace sluice {

// What a daemon needs for a small job.
inline constexpr int kThreadsOfADaemon = 20;
// More are not tried, since trying takes time.
inline constexpr int kMostThreadsTried = 1024;

// Starts `threads` threads that live at the same time, then ends them. RESOURCE_EXHAUSTED: the
// system refused one; the message names the limits that can be the reason.
absl::Status CheckThreadLimit(int threads);

}  // namespace sluice

// The guard of a host (`sluice host-guard`): starts and ends the daemons that a launcher on another
// host asks for, and reports their ends and their logs. cli/hosts/guard_message.h has its language.
//
// Invariants: its daemons end with it, whatever ends it. It ends when its input does, and when no
// word came for kGuardPatienceS. Its folder, with keys and logs, is readable for its user alone and
// is removed at its end; the folder of a guard that was killed is removed by the next one.
//
// Thread safety: one thread, the main thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice::cli {

// Serves the launcher on `in` and `out` until the end. `patience`: how long a program may take for
// telling its version; the first import of a large package from a slow disk takes long.
// REQUIRES: StopSignal::Install was called.
absl::Status RunHostGuard(int in, int out, absl::Duration patience = absl::Minutes(3));

}  // namespace sluice::cli

// The log of this process.
//
// Thread safety: one thread. Call OpenLog once, before other threads log. After OpenLog, LogAndTell
// is safe from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/daemon/identity.h"
#include "common/daemon/log_file.h"
#include "common/security/audit_log.h"

namespace sluice {

// Opens the log. Each glog line is appended to <log_dir>/<LogFileName> at once. Lines until the one
// with kReadyMark, and WARNING and above, also go to stderr, for the person who has started the
// process. A crash leaves its stack in both. The file stays locked as long as this
// process runs: ALREADY_EXISTS, before anything is written, when another process has it. `limits`
// bound the log (LogFile). A second call for the same file changes nothing. --log_dir is glog's own
// flag: main.cc has DECLARE_string(log_dir).
absl::Status OpenLog(const Identity& identity, const char* argv0, const LogLimits& limits = {});
// Continues in the file that now has the log's name; somebody has renamed the old one. Safe from
// any thread.
void ReopenLog();
// Opens <log_dir>/<AuditFileName>. Call it after OpenLog, whose lock keeps other processes away
// from this file too. INVALID_ARGUMENT: it cannot be written.
absl::StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(const Identity& identity, Clock* clock,
                                                       Env* env);

// Writes a line that the person who starts the process should see: to the log, and to stderr unless
// stderr is the log.
void LogAndTell(const std::string& line);

}  // namespace sluice

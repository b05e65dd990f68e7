// Writes lines about one job to a separate log, <log_dir>/<job_id>/<file>.
//
// The file is opened for each line, so it may be moved or deleted at any time.
//
// Format: a line is "2026-01-31 12:34:56.789 text", in local time.
//
// Thread safety: free functions, safe from any thread. Processes may share a file, because each
// line is one write(2) in append mode.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// `rank` is a worker's rank in the job, or the process's own rank for the other roles. `now` is the
// time of day. UNAVAILABLE names the file and says why it cannot be written.
absl::Status AppendToJobLog(const std::string& log_dir, const std::string& job_id, Role role,
                            uint32_t rank, absl::Time now, const std::string& line);

}  // namespace sluice

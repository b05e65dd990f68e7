// What a process writes about one job, beside its own log: <log_dir>/<job_id>/<file>.
//
// Format: a line is "2026-01-31 12:34:56.789 text", local time. The file is opened for each line,
// so it may be moved or deleted at any time. Thread safety: safe from any thread and process; one
// write(2) a line, in append mode.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// `rank`: of a worker its rank in the job, else the process's own. UNAVAILABLE names the file and
// why it cannot be written.
absl::Status AppendToJobLog(const std::string& log_dir, const std::string& job_id, Role role,
                            uint32_t rank, const std::string& line);

}  // namespace sluice

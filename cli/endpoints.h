// <log_dir>/endpoints.log: which processes run where.
//
// Format: a line a process, "role rank address pid admin_address", "-" for none; lines with # are
// comments.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command_line.h"

namespace sluice::cli {

struct Endpoint {
  std::string role;
  uint32_t rank = 0;
  std::string address;
  pid_t pid = 0;
  std::string admin_address;
};

// Empty when there is no file. Lines that are not of the format are skipped.
std::vector<Endpoint> ReadEndpoints(const std::string& log_dir);

// Whether `endpoint` is a Sluice daemon that runs on this host.
bool IsAlive(const Endpoint& endpoint);

// Where a command looks for the logs and endpoints.log: --log_dir, else SLUICE_LOG_DIR, else the
// flag's default.
std::string LogDirOf(const ParsedCommand& command);

// The scheduler's address: --scheduler, else SLUICE_SCHEDULER, else the one in
// <LogDirOf>/endpoints.log. INVALID_ARGUMENT says how to name it.
absl::StatusOr<std::string> FindScheduler(const ParsedCommand& command);

// The same. UNAVAILABLE when its process, which the file names, has ended on this host.
absl::StatusOr<std::string> FindRunningScheduler(const ParsedCommand& command);

// Flags of FindScheduler.
std::vector<FlagSpec> SchedulerFlags();

}  // namespace sluice::cli

// Reads <log_dir>/endpoints.log, which lists the processes of a cluster and their addresses.
//
// Format: one line per process, "role rank address pid admin_address", with "-" for a missing
// address. Lines that begin with # are comments. A process that was started again has a later line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"

namespace sluice::cli {

// The role of the process that `sluice up` leaves: it starts dead processes again.
inline constexpr char kSupervisorRole[] = "supervisor";

struct Endpoint {
  std::string role;
  uint32_t rank = 0;
  std::string address;
  pid_t pid = 0;
  std::string admin_address;
};

// Returns no endpoints when the file does not exist. Skips malformed lines.
std::vector<Endpoint> ReadEndpoints(const std::string& log_dir);

// Whether `endpoint` is a Sluice daemon that runs on this host.
bool IsAlive(const Endpoint& endpoint);

// Returns the folder in which a command looks for the logs and endpoints.log: --log_dir, else
// SLUICE_LOG_DIR, else the flag's default.
std::string LogDirOf(const ParsedCommand& command);

// Returns the scheduler's address, or the addresses of all that may lead (common/config/address.h):
// --scheduler, else SLUICE_SCHEDULER, else the one in <LogDirOf>/endpoints.log. INVALID_ARGUMENT
// says how to give the address.
absl::StatusOr<std::string> FindScheduler(const ParsedCommand& command);

// Like FindScheduler, but returns UNAVAILABLE when the address comes from the file and the
// scheduler, a process of this host, has ended. While other processes of its cluster live, it may
// be being started again, so this waits for it for a few seconds of `clock`.
absl::StatusOr<std::string> FindRunningScheduler(const ParsedCommand& command, Clock* clock);

// The flags that FindScheduler reads.
std::vector<FlagSpec> AddressFlags();

}  // namespace sluice::cli

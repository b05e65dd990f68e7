// The log folder's list of the cluster's processes on this host, endpoints.log.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/daemon/identity.h"

namespace sluice {

// Creates the folder of a process's log. INVALID_ARGUMENT: it cannot be created.
absl::Status CreateLogFolder(const std::string& folder);

// Appends a line "role rank address pid admin_address" to <log_dir>/endpoints.log, with "-" for an
// empty address. ALREADY_EXISTS: Sluice did not write that file, or the scheduler of another
// cluster logs in this folder; `sluice down` of that cluster would end this process with its own.
absl::Status AppendEndpoint(Env* env, const Identity& identity, const std::string& address,
                            const std::string& admin_address);

}  // namespace sluice

// Asks the guards of a launch what could keep its job from running on their hosts, before anything
// starts there (host_checks.h judges it).
//
// Thread safety: free functions; one thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cli/hosts/host_checks.h"
#include "cli/hosts/host_guards.h"

namespace sluice::cli {

struct Inspection {
  CheckRules rules;
  SharedPaths paths;        // of the job
  std::string interpreter;  // of a program of the user; empty: there is none
};

// INVALID_ARGUMENT: what is wrong on which hosts, a line each. CANCELLED: StopIsPending. `note`
// gets warnings.
absl::Status InspectHosts(const Inspection& inspection, HostGuards* guards,
                          const std::function<void(const std::string&)>& note);

// Only the paths, of a job that becomes known later. Hosts that are gone are passed over.
absl::Status InspectPaths(const SharedPaths& paths, HostGuards* guards);

}  // namespace sluice::cli

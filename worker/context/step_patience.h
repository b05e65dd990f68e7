// How long a step of a worker waits for the other members of its job: for the answer to a pull or
// push, and for the other workers with which it exchanges gradients.
//
// A step may have to wait for a lost worker's replacement, which has its own bound. Each loss of a
// member starts the time again: the client restarts its timeout, and the workers form a new group.
// The time is for members that are slow. Those that have died or hang are found by their closed
// connections and by the scheduler's lease.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "proto/config.pb.h"

namespace sluice {

absl::Duration StepPatience(const JobConfig& config);
// Names the options that StepPatience adds up, for messages.
std::string StepPatienceOptions(const JobConfig& config);

}  // namespace sluice

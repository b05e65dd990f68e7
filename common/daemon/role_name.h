// The name of a role in messages, logs, variables and metrics.
#pragma once

#include "proto/scheduler.pb.h"

namespace sluice {

const char* RoleName(Role role);  // "scheduler", "pserver", "worker"

}  // namespace sluice

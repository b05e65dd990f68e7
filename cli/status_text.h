// Formats a cluster's status for people.
#pragma once

#include <string>

#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Members, then jobs with tables, allocation, progress and what they wait for.
std::string StatusText(const ClusterStatus& status);

}  // namespace sluice::cli

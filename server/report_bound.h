// Bounds what a pserver reports to the scheduler, which refuses longer reports.
//
// Thread safety: free function, safe from any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/scheduler.pb.h"

namespace sluice {

// Makes `reports` fit into `max_bytes`: the largest ones lose their contents and get an error that
// says so, with which the scheduler ends their jobs. One job thus ends neither others nor the
// pserver.
void BoundReports(size_t max_bytes, std::vector<HostedJob>* reports);

}  // namespace sluice

// Which queued jobs may start now, and why the others wait: strictly first in, first out.
//
// A small job never overtakes a large one, so that no job starves.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct QueuedJob {
  std::string job_id;
  uint32_t worker_num = 0;
};

struct ClusterView {
  uint32_t free_workers = 0;
  uint32_t alive_workers = 0;
  std::vector<std::string> missing_pservers;  // described, e.g. "pserver 1 (10.0.0.2:5000)"
};

struct QueueDecision {
  bool start = false;
  // It waits for members that are not there at all (rather than for busy ones).
  bool members_absent = false;
  std::string reason;  // when it does not start
};

// One decision a job, in order.
std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& queue, ClusterView cluster);

}  // namespace sluice

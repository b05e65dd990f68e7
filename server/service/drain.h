// Lets the shards of this pserver move to others before its process ends.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

struct DrainOptions {
  SchedulerClient* scheduler = nullptr;
  uint32_t rank = 0;               // of this pserver
  std::function<MemberKey()> key;  // of its present life
  absl::Duration wait;             // at most
  Clock* clock = nullptr;
  std::function<bool()> hosts_jobs;  // whether this process still holds tables
  std::function<void(const std::string&)> log;
};

// Asks the scheduler to drain this pserver, and waits until no job has shards here any more.
// FAILED_PRECONDITION: no other pserver can take them, or a job could not leave; the message says
// why. ABORTED: another process has the rank. UNAVAILABLE: no scheduler has answered for
// kTakeoverPatience. DEADLINE_EXCEEDED: jobs still have shards here after `wait`; the message names
// them.
absl::Status DrainPserver(const DrainOptions& options);

}  // namespace sluice

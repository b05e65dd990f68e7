// A member's batch of trace spans as it came.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct TraceReport {
  uint64_t member_id = 0;
  RegisterRequest member;
  absl::Time received;
  TraceBatch batch;
};

}  // namespace sluice

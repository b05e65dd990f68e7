// Deadlines of gRPC calls, on the monotonic clock.
//
// A deadline in the time of day would move with every step of the machine's clock.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <grpc/support/time.h>

#include "absl/time/time.h"

namespace sluice {

// For ClientContext::set_deadline, Channel::WaitForConnected and Server::Shutdown.
inline gpr_timespec GrpcDeadline(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN));
}

}  // namespace sluice

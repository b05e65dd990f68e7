// A pserver's or worker's membership: registers, reports on time, and hands over what the scheduler wants.
//
// Thread safety: callbacks run on the session's one thread; methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

class MemberSession {
 public:
  struct Options {
    SchedulerClient* scheduler = nullptr;  // outlives the session
    RegisterRequest self;
    absl::Duration wait = absl::Seconds(120);        // for the scheduler at the start
    absl::Duration lost_after = absl::Seconds(20);   // the scheduler is silent for so long: on_lost
    // Adds `hosted`, `progress` and memory to each report.
    std::function<void(PollRequest*)> fill_report;
    // The desired state, at the first reply and at every new version.
    std::function<void(const PollReply&)> on_desired;
    // Last call: the scheduler said stop (OK), was silent too long (UNAVAILABLE), or another process
    // registered this role and rank (ABORTED). The process should end.
    std::function<void(absl::Status)> on_end;
    std::function<void(const std::string&)> log;
  };
  // Waits for the scheduler and registers; then reports in the background.
  static absl::StatusOr<std::unique_ptr<MemberSession>> Start(Options options);
  // Stops reporting; sends Leave when it was not told to stop.
  virtual ~MemberSession() = default;
  virtual uint64_t member_id() const = 0;
  // Reports soon instead of at the next heartbeat (state changed).
  virtual void ReportSoon() = 0;
};

}  // namespace sluice

// A pserver's or worker's membership: registers, reports on time, and hands over what the scheduler
// wants.
//
// While another process holds the role and rank, the session waits for its place (place_claim.h).
//
// Thread safety: on_desired and on_end run on the session's one thread, fill_report and report_lost
// on it or on its helper, one call at a time; methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/process_space.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

class MemberSession {
 public:
  struct Options {
    SchedulerClient* scheduler = nullptr;  // outlives the session
    RegisterRequest self;
    absl::Duration wait = absl::Seconds(120);  // for the scheduler at the start
    // The scheduler is silent for so long, from the first call without an answer: on_end. Zero:
    // SchedulerPatience of the lease (control_plane.h).
    absl::Duration lost_after = absl::ZeroDuration();
    absl::Duration retry_pause = absl::Milliseconds(200);  // after a call without an answer
    absl::Duration place_pause = absl::Milliseconds(500);  // while another holds the place
    // Ends the wait of Start for the place. May be null.
    std::function<bool()> stopping;
    // Of `self.process_space`; for tests.
    std::function<bool(uint32_t pid)> process_has_ended = &ProcessHasEnded;
    // Adds `hosted`, `progress`, `traces` and memory to each report. Reports of ReportSoon, which
    // have no wait_ms, can be overtaken by others.
    std::function<void(PollRequest*)> fill_report;
    // A report that had no answer: the scheduler may have it, or not. May be null.
    std::function<void(const PollRequest&)> report_lost;
    // The desired state, at the first reply and at every new version. After a lease that ran out
    // the member registers again by itself, and this hands over the state of the new life: no jobs.
    std::function<void(const PollReply&)> on_desired;
    // Last call: the scheduler said stop (OK), was silent too long (UNAVAILABLE), or another
    // process has taken this role and rank (ABORTED, ALREADY_EXISTS). The process should end. Not
    // called by destruction.
    std::function<void(absl::Status)> on_end;
    std::function<void(const std::string&)> log;
  };
  // Waits for the scheduler and for the place, and registers; then reports in the background.
  // ALREADY_EXISTS: a living member has the role and rank; CANCELLED soon after `stopping`.
  static absl::StatusOr<std::unique_ptr<MemberSession>> Start(Options options);
  // Stops reporting; sends Leave unless it was fenced or the scheduler was lost. Not from a
  // callback.
  virtual ~MemberSession() = default;
  // Of the present life.
  virtual uint64_t member_id() const = 0;
  // How long calls to the scheduler may go unanswered before the member gives up.
  virtual absl::Duration lost_after() const = 0;
  // Reports soon instead of at the next heartbeat (state changed).
  virtual void ReportSoon() = 0;
};

// Waits until the scheduler answers, at most `wait`, and says every 3 s that it still does.
// CANCELLED soon after `stopping` has become true; UNAVAILABLE names the scheduler and what to do.
absl::Status WaitForScheduler(SchedulerClient* scheduler, absl::Duration wait,
                              const std::function<bool()>& stopping,
                              const std::function<void(const std::string&)>& log);

}  // namespace sluice

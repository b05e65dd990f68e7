// The membership of a pserver or worker in its cluster.
//
// A session registers, reports on time, and hands over the state that the scheduler wants. While
// another process holds the role and rank, the session waits for its place (place_claim.h).
//
// Thread safety: safe from any thread. on_desired and on_end run on the session's own thread.
// fill_report and report_lost run on that thread or on a helper, one call at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/daemon/process_info.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

class MemberSession {
 public:
  struct Options {
    SchedulerClient* scheduler = nullptr;  // outlives the session
    Clock* clock = nullptr;                // required; outlives the session
    RegisterRequest self;
    absl::Duration wait = absl::Seconds(120);  // how long Start waits for the scheduler
    // How long Start tries again while the scheduler answers that it has no room.
    absl::Duration room_wait = absl::ZeroDuration();
    // The session ends (on_end) when the scheduler has been silent for so long since the first
    // unanswered call. Zero means SchedulerPatience of the lease (control_plane.h).
    absl::Duration lost_after = absl::ZeroDuration();
    absl::Duration retry_pause = absl::Milliseconds(200);  // after an unanswered call
    absl::Duration place_pause = absl::Milliseconds(500);  // while another process holds the place
    // When it returns true, Start stops waiting for the place. May be null.
    std::function<bool()> stopping;
    // Says whether a process of `self.process_space` has ended. Tests replace it.
    std::function<bool(uint32_t pid)> process_has_ended = &ProcessHasEnded;
    // Adds `hosted`, `progress`, `traces` and memory to each report. The reports of ReportSoon,
    // which have no wait_ms, can be overtaken by others.
    std::function<void(PollRequest*)> fill_report;
    // Gets each report that was not answered: the scheduler may or may not have received it. May be
    // null.
    std::function<void(const PollRequest&)> report_lost;
    // Adds what the member serves now, when it registers again because the scheduler does not know
    // it. May be null: nothing.
    std::function<void(google::protobuf::RepeatedPtrField<HeldJob>*)> fill_holds;
    // Gets the desired state, at the first reply and at every new version. When its lease has run
    // out, the member registers again by itself and hands over the empty state of its new life.
    // Under another scheduler, which has adopted what the member holds, it hands over nothing then.
    // A scheduler that is older than the last one (IsOlderMemberId) counts as silent.
    std::function<void(const PollReply&)> on_desired;
    // The last callback; the process should end. OK: the scheduler said stop. UNAVAILABLE: the
    // scheduler was silent too long. ABORTED or ALREADY_EXISTS: another process has taken this role
    // and rank. The destructor does not call it.
    std::function<void(absl::Status)> on_end;
    std::function<void(const std::string&)> log;
  };
  // Waits for the scheduler and for the place, and registers; then reports in the background.
  // ALREADY_EXISTS: a living member has the role and rank. CANCELLED: `stopping` returned true.
  static absl::StatusOr<std::unique_ptr<MemberSession>> Start(Options options);
  // Stops reporting. Sends Leave unless the member was fenced or the scheduler was lost. Must not
  // run in a callback.
  virtual ~MemberSession() = default;
  // The credentials of this member's present life, which each of its calls must show.
  virtual MemberKey key() const = 0;
  // How long calls to the scheduler may go unanswered before the member gives up.
  virtual absl::Duration lost_after() const = 0;
  // How long the scheduler has been silent, since the first unanswered call; zero while it answers.
  virtual absl::Duration silent() const = 0;
  // Reports soon instead of at the next heartbeat. Call it when the reported state has changed.
  virtual void ReportSoon() = 0;
};

// Waits until the scheduler answers, at most `wait`, and logs every 3 s that it still waits.
// CANCELLED soon after `stopping` returns true. UNAVAILABLE names the scheduler and what to do.
absl::Status WaitForScheduler(SchedulerClient* scheduler, Clock* clock, absl::Duration wait,
                              const std::function<bool()>& stopping,
                              const std::function<void(const std::string&)>& log);

}  // namespace sluice

#include "common/daemon/member_session.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/place_claim.h"
#include "common/daemon/scheduler_wait.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

constexpr absl::Duration kNamePeersEvery = absl::Seconds(3);
// The longest delay before a stop is noticed while waiting for the scheduler.
constexpr absl::Duration kStopEvery = absl::Milliseconds(500);

PlaceClaim::Options ClaimOf(const MemberSession::Options& options) {
  PlaceClaim::Options claim;
  claim.scheduler = options.scheduler;
  claim.self = options.self;
  claim.clock = options.clock;
  claim.process_has_ended = options.process_has_ended;
  claim.log = options.log;
  return claim;
}

// The scheduler answered, and may have room later.
bool HasNoRoom(const absl::Status& status) {
  return MayBeAnsweredLater(status) && !GotNoAnswer(status);
}

// One thread polls. Its call waits at the scheduler for a new desired state and also serves as the
// heartbeat. That call cannot be cut short, so a helper thread sends the reports of ReportSoon
// meanwhile. When such a report changes the desired state, the waiting poll returns it.
class PollingSession : public MemberSession {
 public:
  PollingSession(Options options, const RegisterReply& registered)
      : options_(std::move(options)),
        lost_after_(options_.lost_after > absl::ZeroDuration()
                        ? options_.lost_after
                        : SchedulerPatience(absl::Milliseconds(registered.lease_ms()))),
        claim_(ClaimOf(options_)) {
    Adopt(registered);
    poller_ = std::thread([this] { PollLoop(); });
    helper_ = std::thread([this] { HelperLoop(); });
  }

  ~PollingSession() override {
    bool leave;
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      leave = !cut_off_;
      changed_.NotifyAll();
    }
    if (leave) {
      // The scheduler also answers the waiting poll then, so that join does not wait for a
      // heartbeat.
      LeaveRequest request;
      ShowKey(&request);
      request.set_reason("the process ends");
      options_.scheduler->Leave(request).IgnoreError();  // no caller is left to tell
    }
    poller_.join();
    helper_.join();
  }

  MemberKey key() const override {
    MutexLock lock(&mutex_);
    return key_;
  }

  absl::Duration lost_after() const override { return lost_after_; }

  absl::Duration silent() const override {
    MutexLock lock(&mutex_);
    return silence_.silent(options_.clock->Now());
  }

  void ReportSoon() override {
    MutexLock lock(&mutex_);
    report_soon_ = true;
    changed_.NotifyAll();
  }

 private:
  void Adopt(const RegisterReply& reply) {
    seen_version_ = 0;
    // At least a millisecond: a scheduler with a broken configuration must not be polled in a spin.
    heartbeat_ms_ = reply.heartbeat_ms() > 0 ? reply.heartbeat_ms() : 1;
    MutexLock lock(&mutex_);
    key_ = {reply.member_id(), reply.secret()};
  }

  template <typename Request>
  void ShowKey(Request* request) const {
    const MemberKey shown = key();
    request->set_member_id(shown.id);
    request->set_secret(shown.secret);
  }

  absl::StatusOr<PollReply> Report(uint32_t wait_ms, uint64_t seen_version) {
    PollRequest request;
    ShowKey(&request);
    request.set_seen_version(seen_version);
    request.set_wait_ms(wait_ms);
    {
      MutexLock lock(&fill_mutex_);
      if (options_.fill_report) options_.fill_report(&request);
    }
    absl::StatusOr<PollReply> reply = options_.scheduler->Poll(request);
    if (!reply.ok() && options_.report_lost) {
      MutexLock lock(&fill_mutex_);
      options_.report_lost(request);
    }
    return reply;
  }

  bool Stopping() {
    MutexLock lock(&mutex_);
    return stopping_;
  }

  // Waits for `time`. Returns false when the session is being destroyed.
  bool Pause(absl::Duration time) {
    MutexLock lock(&mutex_);
    const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
    while (!stopping_) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= left.zero()) break;
      changed_.WaitFor(&mutex_, left);
    }
    return !stopping_;
  }

  void End(absl::Status why) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      // A scheduler that said stop waits for the Leave call. In all other cases it is lost, or has
      // given the place away, and the destructor must not send Leave.
      cut_off_ = !why.ok();
      ended_ = true;
      changed_.NotifyAll();
    }
    if (options_.on_end) options_.on_end(std::move(why));
  }

  void Answered() {
    MutexLock lock(&mutex_);
    silence_.Answered();
  }
  absl::Duration Unanswered() {
    MutexLock lock(&mutex_);
    return silence_.Unanswered(options_.clock->Now());
  }

  void PollLoop() {
    bool register_again = false;
    while (!Stopping()) {
      absl::Status status;
      if (register_again) {
        const absl::StatusOr<bool> registered = RegisterAgain();
        status = registered.status();
        if (registered.ok() && !*registered) {
          Answered();
          if (!Pause(options_.place_pause)) return;
          continue;
        }
      } else {
        status = PollOnce();
      }
      if (status.ok()) {
        Answered();
        refused_.clear();
        register_again = false;
        if (told_to_stop_) return End(absl::OkStatus());
        continue;
      }
      if (absl::IsNotFound(status) && !register_again) {
        if (options_.log) options_.log(absl::StrCat(status.message(), "; registering again"));
        register_again = true;
        continue;
      }
      if (!MayBeAnsweredLater(status)) return End(status);
      const absl::Duration silent = Unanswered();
      if (silent >= lost_after_) {
        return End(absl::UnavailableError(absl::StrCat(
            "the scheduler at ", options_.scheduler->address(), " has answered no report for ",
            absl::ToInt64Seconds(silent), " s: ", status.message())));
      }
      LogRefusal();
      if (!Pause(options_.retry_pause)) return;
    }
  }

  // Says once, while the scheduler is silent, that somebody else serves in its place.
  void LogRefusal() {
    const std::string refused = options_.scheduler->WhyRefused();
    if (refused == refused_) return;
    refused_ = refused;
    if (!refused.empty() && options_.log)
      options_.log(absl::StrCat("the scheduler does not answer: ", refused));
  }

  absl::Status PollOnce() {
    const absl::Time asked = options_.clock->Now();
    const absl::StatusOr<PollReply> reply = Report(heartbeat_ms_, seen_version_);
    if (!reply.ok()) return reply.status();
    if (reply->version() == seen_version_ && !reply->stop()) {
      // A scheduler without room for all calls that wait answers some early, with no news. Members
      // that asked again at once would only crowd each other out.
      const absl::Duration early =
          asked + absl::Milliseconds(heartbeat_ms_) - options_.clock->Now();
      if (early > absl::ZeroDuration()) Pause(std::min(early, options_.retry_pause));
      return absl::OkStatus();
    }
    seen_version_ = reply->version();
    if (options_.on_desired && !Stopping()) options_.on_desired(*reply);
    told_to_stop_ = reply->stop();
    return absl::OkStatus();
  }

  // Returns false while another process holds the place.
  absl::StatusOr<bool> RegisterAgain() {
    google::protobuf::RepeatedPtrField<HeldJob> holds;
    if (options_.fill_holds) options_.fill_holds(&holds);
    SLUICE_ASSIGN_OR_RETURN(const std::optional<RegisterReply> reply, claim_.Ask(holds));
    if (!reply.has_value()) return false;
    const uint64_t present = key().id;
    if (IsOlderMemberId(reply->member_id(), present)) {
      return absl::UnavailableError(
          absl::StrCat("an earlier scheduler answered, which knows this process as member ",
                       reply->member_id(), "; a later one has named it member ", present));
    }
    // The orders to the member's earlier life no longer hold.
    if (!reply->adopted() && options_.on_desired && !Stopping()) options_.on_desired(PollReply());
    Adopt(*reply);
    return true;
  }

  void HelperLoop() {
    for (;;) {
      {
        MutexLock lock(&mutex_);
        while (!report_soon_ && !stopping_ && !ended_) changed_.Wait(&mutex_);
        if (stopping_ || ended_) return;
        report_soon_ = false;
      }
      // With version 0 and no wait, the reply comes at once. It can be ignored: the poller receives
      // the desired state too. A lost report does no harm: the next heartbeat says the same.
      Report(0, 0).status().IgnoreError();
    }
  }

  const Options options_;
  const absl::Duration lost_after_;
  // Only the poller uses these, and the constructor before the poller starts.
  PlaceClaim claim_;
  uint64_t seen_version_ = 0;
  uint32_t heartbeat_ms_ = 1;
  bool told_to_stop_ = false;

  Mutex fill_mutex_;  // held around fill_report and report_lost; never together with mutex_

  mutable Mutex mutex_;
  CondVar changed_;
  MemberKey key_ ABSL_GUARDED_BY(mutex_);
  SilenceTimer silence_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_off_ ABSL_GUARDED_BY(mutex_) = false;
  bool report_soon_ ABSL_GUARDED_BY(mutex_) = false;

  std::string refused_;  // used by the poller alone: what LogRefusal has said

  std::thread poller_;
  std::thread helper_;
};

}  // namespace

absl::Status WaitForScheduler(SchedulerClient* scheduler, Clock* clock, absl::Duration wait,
                              const std::function<bool()>& stopping,
                              const std::function<void(const std::string&)>& log) {
  const absl::Time begin = clock->Now();
  absl::Time next_log = begin + kNamePeersEvery;
  WaitingLines lines(scheduler, wait);
  for (;;) {
    if (stopping()) return absl::CancelledError("stopped before the scheduler answered");
    const absl::Duration left = begin + wait - clock->Now();
    const absl::Status ready = scheduler->WaitReady(std::min(left, kStopEvery), nullptr);
    if (ready.ok()) return absl::OkStatus();
    if (left <= kStopEvery) break;
    if (clock->Now() < next_log) continue;
    next_log += kNamePeersEvery;
    log(lines.Next(clock->Now() - begin));
  }
  return SchedulerDidNotAnswer(scheduler, wait);
}

absl::StatusOr<std::unique_ptr<MemberSession>> MemberSession::Start(Options options) {
  Clock* const clock = options.clock;
  const absl::Time room_end = clock->Now() + options.room_wait;
  absl::Time end = clock->Now() + options.wait, next_log = absl::InfinitePast();
  SLUICE_RETURN_IF_ERROR(options.scheduler->WaitReady(options.wait, options.log));
  PlaceClaim claim(ClaimOf(options));
  for (;;) {
    const absl::StatusOr<std::optional<RegisterReply>> reply = claim.Ask();
    if (reply.ok() && reply->has_value()) {
      if (options.log) {
        options.log(absl::StrCat(kReadyMark, "registered at the scheduler at ",
                                 options.scheduler->address()));
      }
      return std::unique_ptr<MemberSession>(new PollingSession(std::move(options), **reply));
    }
    if (options.stopping && options.stopping()) {
      return absl::CancelledError("stopped before the scheduler gave this process its place");
    }
    if (reply.ok()) {  // another process holds the place; its lease bounds this wait
      end = clock->Now() + options.wait;
      clock->Sleep(options.place_pause);
    } else if (HasNoRoom(reply.status()) && clock->Now() < room_end) {
      end = clock->Now() + options.wait;
      if (options.log && clock->Now() >= next_log) {
        options.log(absl::StrCat("waiting for room at the scheduler: ", reply.status().message()));
        next_log = clock->Now() + kNamePeersEvery;
      }
      clock->Sleep(options.retry_pause);
    } else if (MayBeAnsweredLater(reply.status()) && clock->Now() < end) {
      clock->Sleep(options.retry_pause);
    } else {
      return reply.status();
    }
  }
}

}  // namespace sluice

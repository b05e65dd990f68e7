// Takes in the calls of members and operators: makes events of them for the loop, and answers with
// what the core replies.
//
// Requests of members are bounded and their text is made printable (request_text.h); one that
// breaks a bound is INVALID_ARGUMENT. What callers cause to be logged is limited (LimitedLog).
//
// A call with a `done` returns at once, and is answered through `done` on any thread: when the news
// that it waits for are there, and what it has changed is kept. So a slow state store holds up no
// caller's thread, except those that submit jobs. When a newer scheduler has taken over, calls that
// change a job are UNAVAILABLE.
//
// Memory: requests are used during the call only. A call that waits keeps a few fields of its own.
//
// Thread safety: safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/limited_log.h"
#include "scheduler/service/job_submission.h"
#include "scheduler/service/scheduler_loop.h"

namespace sluice {

template <class Reply>
using Done = std::function<void(absl::StatusOr<Reply>)>;
using DoneStatus = std::function<void(const absl::Status&)>;

class RequestIntake {
 public:
  // Submissions need all that the other calls need.
  using Options = JobSubmission::Options;
  // The loop may still answer calls when the intake is gone.
  explicit RequestIntake(const Options& options)
      : loop_(options.loop),
        log_(options.log),
        caller_log_(options.clock, LimitsOfCallers(), options.log),
        submission_(options) {}

  // `believed`, `notes`: see MemberCalls::Register. `caller`, of calls that may wait: whom they
  // are counted for. See WaitingCalls.
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request, bool believed = true,
                                         RegisterNotes* notes = nullptr);
  void Poll(const PollRequest* asked, Done<PollReply> done, const std::string& caller = "");
  absl::Status Leave(const LeaveRequest& request);
  // The role and the rank under which the member has registered; nothing when there is no such
  // member.
  std::optional<std::pair<Role, uint32_t>> RoleAndRankOf(uint64_t member_id);
  // NOT_FOUND: another process is the member, or the member is already gone.
  absl::Status MemberEnded(const MemberEndedRequest& request);
  // The connection over which the member's Poll waited has broken.
  void ConnectionBroke(uint64_t member_id, const std::string& secret);

  void NextPhase(const NextPhaseRequest* asked, Done<NextPhaseReply> done,
                 const std::string& caller = "");
  void NextTask(const NextTaskRequest& request, Done<NextTaskReply> done);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  void FailJob(const FailJobRequest& request, DoneStatus done);
  void Gather(const GatherRequest* asked, Done<GatherReply> done, const std::string& caller = "");
  void EndJob(const EndJobRequest& request, DoneStatus done);

  // Waits in the calling thread, for files and for the state store. See JobSubmission::Submit.
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request,
                                           const std::string& request_id = "") {
    return submission_.Submit(request, request_id);
  }
  void WatchJob(const WatchJobRequest* asked, Done<WatchJobReply> done,
                const std::string& caller = "");
  void CheckpointJob(const CheckpointJobRequest* request, Done<CheckpointJobReply> done,
                     const std::string& caller = "");
  void DeleteRows(const DeleteRowsRequest* request, Done<DeleteRowsReply> done,
                  const std::string& caller = "");
  void CancelJob(const CancelJobRequest& request, DoneStatus done);
  void ScaleJob(const ScaleJobRequest& request, DoneStatus done);
  void DrainPserver(const DrainPserverRequest& request, Done<DrainPserverReply> done);
  ClusterStatus GetStatus() { return loop_->GetStatus(); }
  void Shutdown(DoneStatus done);
  // See SchedulerLoop::StopWaiting.
  void StopWaiting() { loop_->StopWaiting(); }

 private:
  // Frees the place of a member whose process, on this host, has ended. False when it has not, or
  // cannot be judged here.
  bool FreePlaceOf(const RegisterRequest& newcomer, const Incumbent& incumbent);
  static LimitedLog::Limits LimitsOfCallers();
  void LogRegistration(const RegisterRequest& request, const absl::StatusOr<RegisterReply>& reply);
  void LogDrain(const DrainPserverRequest& request, const absl::StatusOr<DrainPserverReply>& reply);

  SchedulerLoop* const loop_;
  const std::function<void(const std::string&)> log_;
  LimitedLog caller_log_;
  std::atomic<uint64_t> refused_life_{0};  // of the last logged refusal; relaxed: only for the log
  JobSubmission submission_;
};

}  // namespace sluice

// The scheduler's calls as plain functions.
//
// A client has one channel and a deadline on every call; its errors name the scheduler's address.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class SchedulerClient {
 public:
  static std::unique_ptr<SchedulerClient> Create(const std::string& address);
  virtual ~SchedulerClient() = default;
  virtual const std::string& address() const = 0;

  // Waits until the scheduler answers, at most `wait`. Every 3 s it tells `log` how long it has
  // waited. UNAVAILABLE names the address and what to do.
  virtual absl::Status WaitReady(absl::Duration wait,
                                 const std::function<void(const std::string&)>& log) = 0;

  // UNAVAILABLE when the scheduler cannot be reached or the deadline passes. Calls that wait at the
  // scheduler (Poll, NextPhase, WatchJob, CheckpointJob) get their wait_ms on top of the deadline.
  // A SubmitJob that resumes may take long, because files are read. All calls but SubmitJob, and
  // CheckpointJob without a number, may be retried.
  virtual absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) = 0;
  virtual absl::StatusOr<PollReply> Poll(const PollRequest& request) = 0;
  virtual absl::Status Leave(const LeaveRequest& request) = 0;
  virtual absl::Status MemberEnded(const MemberEndedRequest& request) = 0;
  virtual absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request) = 0;
  virtual absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) = 0;
  virtual absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request) = 0;
  virtual absl::Status FailJob(const FailJobRequest& request) = 0;
  virtual absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request) = 0;
  // Like SubmitJob, but may be repeated with the same request_id (kRequestIdKey).
  virtual absl::StatusOr<SubmitJobReply> SubmitJobAs(const std::string& request_id,
                                                     const SubmitJobRequest& request) {
    (void)request_id;  // a scheduler that a test replaces does not end between two calls
    return SubmitJob(request);
  }
  virtual absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request) = 0;
  virtual absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest&) {
    return absl::UnimplementedError("this client makes no checkpoints");
  }
  virtual absl::Status CancelJob(const CancelJobRequest& request) = 0;
  virtual absl::StatusOr<ClusterStatus> GetStatus() = 0;
  virtual absl::Status Shutdown() = 0;
};

}  // namespace sluice

// The scheduler's calls as plain functions.
//
// A client has a deadline on every call; its errors name the scheduler's address.
//
// Several schedulers:
// One of them leads; those that stand by take no connections. A client has a channel to each. It
// stays with the one that answered last (SchedulerChoice), and looks for another one when that has
// no connection, or leaves a call unanswered for a second. A call that is cut short for that reason
// returns UNAVAILABLE, as with a scheduler that dies, and the caller repeats it.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class GrpcCredentials;

// How long a command keeps trying while no scheduler answers it: longer than a standby takes to
// lead.
inline constexpr absl::Duration kTakeoverPatience = absl::Seconds(5);

// Identifies a member to its scheduler.
struct MemberKey {
  uint64_t id = 0;
  std::string secret;  // RegisterReply.secret
};

class SchedulerClient {
 public:
  // `addresses`: one or several, as in common/config/address.h. `clock` outlives the client.
  // Without credentials the connections are plain TCP.
  static std::unique_ptr<SchedulerClient> Create(const std::string& addresses, Clock* clock,
                                                 const GrpcCredentials& credentials);
  static std::unique_ptr<SchedulerClient> Create(const std::string& addresses, Clock* clock);
  virtual ~SchedulerClient() = default;
  // All addresses.
  virtual const std::string& address() const = 0;

  // Waits until a scheduler answers, at most `wait`. Every 3 s it tells `log` how long it has
  // waited. UNAVAILABLE names the address and what to do.
  virtual absl::Status WaitReady(absl::Duration wait,
                                 const std::function<void(const std::string&)>& log) = 0;

  // Returns what gRPC says is in the way of a connection, with the fix where TLS is the cause
  // (TlsAdvice). "" when it says nothing.
  virtual std::string WhyNotReady() { return ""; }
  // Why the process that serves at one of the addresses is not called: another user of this host
  // runs it (ServerGuard). "" when that is not so.
  virtual std::string WhyRefused() { return ""; }

  // UNAVAILABLE when the scheduler cannot be reached or the deadline passes. Calls that wait at the
  // scheduler (Poll, NextPhase, Gather, WatchJob, CheckpointJob, DeleteRows) get their wait_ms on
  // top of the deadline. A SubmitJob that resumes may take long, because files are read. All calls
  // but SubmitJob, and CheckpointJob without a number, may be retried.
  virtual absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) = 0;
  virtual absl::StatusOr<PollReply> Poll(const PollRequest& request) = 0;
  virtual absl::Status Leave(const LeaveRequest& request) = 0;
  // NOT_FOUND: the process was no member, or had left the cluster in order before it ended.
  virtual absl::Status MemberEnded(const MemberEndedRequest& request) = 0;
  virtual absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request) = 0;
  virtual absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) = 0;
  virtual absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request) = 0;
  virtual absl::Status FailJob(const FailJobRequest& request) = 0;
  virtual absl::StatusOr<GatherReply> Gather(const GatherRequest&) {
    return absl::UnimplementedError("this client gathers nothing");
  }
  virtual absl::Status EndJob(const EndJobRequest&) {
    return absl::UnimplementedError("this client ends no jobs");
  }
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
  virtual absl::StatusOr<DeleteRowsReply> DeleteRows(const DeleteRowsRequest&) {
    return absl::UnimplementedError("this client deletes no rows");
  }
  virtual absl::Status ScaleJob(const ScaleJobRequest&) {
    return absl::UnimplementedError("this client scales no jobs");
  }
  virtual absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest&) {
    return absl::UnimplementedError("this client drains no pservers");
  }
  virtual absl::Status CancelJob(const CancelJobRequest& request) = 0;
  virtual absl::StatusOr<ClusterStatus> GetStatus() = 0;
  virtual absl::Status Shutdown() = 0;
};

}  // namespace sluice

// A SchedulerClient that refuses every call. Tests override the calls that they are about.
#pragma once

#include <functional>
#include <string>

#include "common/daemon/scheduler_client.h"

namespace sluice {

class RefusingScheduler : public SchedulerClient {
 public:
  const std::string& address() const override { return address_; }
  absl::Status WaitReady(absl::Duration, const std::function<void(const std::string&)>&) override {
    return Refusal();
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest&) override { return Refusal(); }
  absl::StatusOr<PollReply> Poll(const PollRequest&) override { return Refusal(); }
  absl::Status Leave(const LeaveRequest&) override { return Refusal(); }
  absl::Status MemberEnded(const MemberEndedRequest&) override { return Refusal(); }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override { return Refusal(); }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest&) override { return Refusal(); }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override { return Refusal(); }
  absl::Status FailJob(const FailJobRequest&) override { return Refusal(); }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest&) override { return Refusal(); }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest&) override { return Refusal(); }
  absl::Status CancelJob(const CancelJobRequest&) override { return Refusal(); }
  absl::StatusOr<ClusterStatus> GetStatus() override { return Refusal(); }
  absl::Status Shutdown() override { return Refusal(); }

 private:
  static absl::Status Refusal() { return absl::UnimplementedError("not in this test"); }
  const std::string address_ = "scheduler:1";
};

}  // namespace sluice

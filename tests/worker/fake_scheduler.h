// A scheduler that leases a list of tasks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "common/daemon/scheduler_client.h"

namespace sluice {

// Leases `tasks` in order and remembers the tasks reported as trained. A request repeated with the
// same number gets the same answer.
class FakeScheduler : public SchedulerClient {
 public:
  const std::string& address() const override { return address_; }
  absl::Status WaitReady(absl::Duration, const std::function<void(const std::string&)>&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest&) override {
    return RegisterReply();
  }
  absl::StatusOr<PollReply> Poll(const PollRequest&) override { return PollReply(); }
  absl::Status Leave(const LeaveRequest&) override { return absl::OkStatus(); }
  absl::Status MemberEnded(const MemberEndedRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override {
    return NextPhaseReply();
  }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) override {
    if (failures > 0) {
      --failures;
      return failure;
    }
    if (request.number() == 0 || request.number() != answered_) {
      answered_ = request.number();
      answer_ = Answer(request);
    }
    if (lost_replies > 0) {
      --lost_replies;
      return absl::UnavailableError("the reply was lost");
    }
    return answer_;
  }
  NextTaskReply Answer(const NextTaskRequest& request) {
    if (request.finished_task() != 0)
      finished[request.finished_task()] = request.finished_examples();
    for (const NextTaskRequest::Finished& more : request.more_finished())
      finished[more.task()] = more.examples();
    NextTaskReply reply;
    if (waits > 0) {
      --waits;
      reply.set_kind(NextTaskReply::WAIT);
    } else if (tasks.empty()) {
      reply.set_kind(NextTaskReply::EPOCH_DONE);
    } else {
      reply.set_kind(NextTaskReply::TASK);
      *reply.mutable_task() = tasks.front();
      tasks.pop_front();
      for (uint32_t n = 1; n < request.wants() && n < most && !tasks.empty(); ++n) {
        *reply.add_more() = tasks.front();
        tasks.pop_front();
      }
    }
    ++answers;
    return reply;
  }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override {
    return GetRouteReply();
  }
  absl::Status FailJob(const FailJobRequest&) override { return absl::OkStatus(); }
  absl::Status EndJob(const EndJobRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest&) override {
    return SubmitJobReply();
  }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest&) override {
    return WatchJobReply();
  }
  absl::Status CancelJob(const CancelJobRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<ClusterStatus> GetStatus() override { return ClusterStatus(); }
  absl::Status Shutdown() override { return absl::OkStatus(); }

  std::deque<DataTask> tasks;
  std::map<uint64_t, uint64_t> finished;
  int failures = 0;  // requests that do not arrive
  absl::Status failure = absl::UnavailableError("the scheduler is away");
  int lost_replies = 0;  // requests that take effect but get no answer
  uint32_t most = 1;     // tasks that a request gets at most
  int answers = 0;       // requests that took effect
  int waits = 0;         // requests that are answered with WAIT

 private:
  const std::string address_ = "fake:1";
  uint64_t answered_ = 0;  // number of the last request
  NextTaskReply answer_;
};

}  // namespace sluice

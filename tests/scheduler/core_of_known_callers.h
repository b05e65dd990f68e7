// A core whose callers show what it has given them: members their secrets, registrations the passes
// of what they hold, and workers the pass of their rank. A call that shows something is left as it
// is.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "common/security/job_passes.h"
#include "scheduler/core/scheduler_core.h"

namespace sluice {

class CoreOfKnownCallers : public SchedulerCore {
 public:
  CoreOfKnownCallers(Options options, absl::Time now)
      : SchedulerCore(options, now), pass_key_(options.pass_key) {}

  absl::StatusOr<RegisterReply> Register(const RegisterRequest& asked, absl::Time now,
                                         bool believed = true, RegisterNotes* notes = nullptr) {
    RegisterRequest request = asked;
    for (HeldJob& held : *request.mutable_holds()) {
      const JobPasses passes(JobPassKey(pass_key_, held.instance()));
      if (!held.pass().empty()) continue;
      held.set_pass(request.role() == ROLE_PSERVER
                        ? passes.OfTables(request.rank())
                        : passes.OfWorker(held.rank(), held.incarnation()));
    }
    auto reply = members().Register(request, now, believed, notes);
    if (reply.ok() && reply->member_id() != 0) secrets_[reply->member_id()] = reply->secret();
    return reply;
  }
  absl::StatusOr<PollReply> Poll(const PollRequest& request, absl::Time now) {
    auto reply = members().Poll(Shown(request), now);
    if (reply.ok() && reply->has_assignment()) {
      const WorkerAssignment& told = reply->assignment();
      passes_[{told.job().job_id(), told.rank(), told.incarnation()}] = told.pass();
    }
    return reply;
  }
  void Leave(const LeaveRequest& request, absl::Time now) {
    members().Leave(Shown(request), now).IgnoreError();
  }
  absl::Status FailJob(const FailJobRequest& request, absl::Time now) {
    return workers().FailJob(Shown(request), now);
  }
  absl::Status EndJob(const EndJobRequest& request, absl::Time now) {
    return workers().EndJob(Shown(request), now);
  }
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request,
                                                 absl::Time now) {
    return operators().DrainPserver(Shown(request), now);
  }
  absl::StatusOr<NextPhaseReply> NextPhase(NextPhaseRequest request, absl::Time now) {
    ShowPass(&request);
    return workers().NextPhase(request, now);
  }
  bool PhaseReady(NextPhaseRequest request) {
    ShowPass(&request);
    return workers().PhaseReady(request);
  }
  absl::StatusOr<NextTaskReply> NextTask(NextTaskRequest request, absl::Time now) {
    ShowPass(&request);
    return workers().NextTask(request, now);
  }
  absl::StatusOr<GatherReply> Gather(GatherRequest request) {
    ShowPass(&request);
    return workers().Gather(request);
  }
  // The passes that workers were given and show: by job, rank and incarnation.
  using Passes = std::map<std::tuple<std::string, uint32_t, uint64_t>, std::string>;
  Passes& passes() { return passes_; }
  std::string SecretOf(uint64_t member_id) const {
    const auto found = secrets_.find(member_id);
    return found == secrets_.end() ? "" : found->second;
  }

 private:
  template <typename Request>
  Request Shown(Request request) const {
    if (request.secret().empty()) request.set_secret(SecretOf(request.member_id()));
    return request;
  }
  template <typename Request>
  void ShowPass(Request* request) const {
    const auto found = passes_.find({request->job_id(), request->rank(), request->incarnation()});
    if (request->pass().empty() && found != passes_.end()) request->set_pass(found->second);
  }

  const std::string pass_key_;
  std::map<uint64_t, std::string> secrets_;
  Passes passes_;
};

}  // namespace sluice

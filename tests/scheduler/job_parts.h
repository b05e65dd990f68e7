// Makes jobs and members for tests of the parts of the scheduler's core.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/eval/eval_accumulator.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"

namespace sluice {

// Returns a queued job with this many workers.
inline std::unique_ptr<Job> QueuedFor(const std::string& job_id, uint32_t workers = 1) {
  Job::Submission submission;
  submission.job_id = job_id;
  submission.config.set_name(job_id);
  submission.config.set_output_dir("/output/" + job_id);
  submission.config.mutable_train()->set_epochs(1);
  submission.config.set_evaluate_only(true);  // phases INDEX, EVAL, FINISH
  auto job = std::make_unique<Job>(std::move(submission));
  JobSpec spec;
  spec.set_job_id(job_id);
  spec.set_worker_num(workers);
  job->attempt.Specify(std::move(spec), /*point=*/nullptr);
  job->attempt.MutableSpecForTest()->set_instance(77);
  return job;
}

// Brings the job to RUNNING.
inline void SetRunning(Job* job) {
  JobRun::Options options;
  options.config = &job->config();
  options.worker_num = job->spec().worker_num();
  job->course.Run();
  job->attempt.Run(options, absl::UnixEpoch());
}

// Brings the job to its end; its result is written.
inline void SetDone(Job* job) {
  job->course.End(JOB_DONE, "", absl::UnixEpoch());
  job->course.Written();
}

// Reports from all ranks that the job's present phase has ended.
inline void EndPhase(Job* job) {
  PhaseReport report;
  report.set_number(job->run()->phases().current().number());
  EvalAccumulator sums;
  sums.Add(0.5f, 1.0f, 1.0f);
  *report.mutable_eval() = sums.ToProto();
  for (uint32_t rank = 0; rank < job->spec().worker_num(); ++rank) {
    EXPECT_TRUE(job->run()->TakeReport(rank, report, absl::UnixEpoch()).ok());
  }
}

// Registers a member, alive since `now`.
inline Member* Join(Membership* members, Role role, uint32_t rank,
                    absl::Time now = absl::UnixEpoch()) {
  RegisterRequest request;
  request.set_protocol(1);
  request.set_role(role);
  request.set_rank(rank);
  request.set_host("h");
  request.set_pid(10 + rank);
  request.set_process_space("space");
  if (role == ROLE_PSERVER) request.set_address(absl::StrCat("ps", rank));
  Member fenced;
  const absl::StatusOr<Member*> member =
      members->Register(request, /*believed=*/true, now, &fenced);
  EXPECT_TRUE(member.ok()) << member.status();
  return *member;
}

// Lets the member take a rank of the job.
inline void Allocate(Job* job, Member* worker) {
  job->ranks.Add(worker->id, worker->self.rank(), /*incarnation=*/500);
  worker->job_id = job->id();
}

// Lets the pserver be the next one of the job.
inline void AddPserver(Job* job, const Member& pserver) {
  std::vector<uint64_t> members = job->pservers.members();
  members.push_back(pserver.id);
  job->pservers.Serve(std::move(members));
}

}  // namespace sluice

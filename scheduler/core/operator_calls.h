// Answers the calls of operators: they submit, follow, scale and cancel jobs, ask for checkpoints,
// drain pservers and shut the cluster down.
//
// A job is submitted in two steps, between which its record is kept: first PrepareJob and
// RecordsOf, then AddJob. One submission at a time.
//
// A call's error goes to its caller; the status of a job shows what happened to the job.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/meta_store/meta_store.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/core_parts.h"
#include "scheduler/job/resume_point.h"

namespace sluice {

class OperatorCalls {
 public:
  // `parts` outlives this.
  OperatorCalls(CoreParts* parts, absl::Time now) : parts_(parts), started_(now) {}

  // The config is effective and the tables are the model's; an empty output_dir becomes
  // `default_output`/<job_id>. The job's number is at least `first_number`. `warnings` become the
  // first ones of the job. The job continues from `resume`, if given.
  // RESOURCE_EXHAUSTED: JobQueue::kMaxJobs are queued.
  absl::StatusOr<std::unique_ptr<Job>> PrepareJob(
      const JobConfig& config, const std::vector<TableConfig>& tables,
      const std::string& default_output, uint64_t first_number,
      std::vector<std::string> warnings = {}, std::unique_ptr<const ResumePoint> resume = nullptr);
  std::vector<MetaStore::Write> RecordsOf(const Job& job) const;
  // FAILED_PRECONDITION: the cluster is shutting down.
  absl::StatusOr<std::string> AddJob(std::unique_ptr<Job> job, absl::Time now);
  // ALREADY_EXISTS names a job that has not ended and writes to the same files as this one would.
  absl::Status CheckOutputs(const JobConfig& config) const;
  // The job that was submitted with this request_id; "": none.
  std::string JobOfRequest(const std::string& request_id) const;
  // The next job gets at least this number.
  uint64_t next_number() const { return parts_->admission.next_number(); }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request);
  absl::StatusOr<uint64_t> JobVersion(const std::string& job_id);
  // Asks for a checkpoint of the job (number 0) or for the outcome of an earlier request. The reply
  // is `done` once the checkpoint is over. FAILED_PRECONDITION: the job makes none now.
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const std::string& job_id, uint64_t number,
                                                   absl::Time now);
  // True when the outcome of checkpoint `number` is known, or CheckpointJob returns an error.
  bool CheckpointOver(const std::string& job_id, uint64_t number);
  // Deletes the rows of these keys, ascending and each once (DeletionLifecycle::Begin).
  absl::StatusOr<DeleteRowsReply> DeleteRows(const std::string& job_id, const std::string& table,
                                             std::vector<uint64_t> keys, absl::Time now);
  // What has become of an earlier request. The reply is `done` once it is over. NOT_FOUND: there is
  // no such request.
  absl::StatusOr<DeleteRowsReply> DeletionOutcome(const std::string& job_id, uint64_t deletion);
  // With a `failure` the job ends as failed.
  absl::Status CancelJob(const std::string& job_id, absl::Time now,
                         const std::string& failure = "");
  // The job's next attempt begins with this many workers, once a checkpoint is complete. NOT_FOUND,
  // INVALID_ARGUMENT, FAILED_PRECONDITION: see AttemptPlans::Scale.
  absl::Status ScaleJob(const std::string& job_id, uint32_t worker_num, absl::Time now);
  // Marks the pserver as draining, or with `cancel` not any more. Jobs that use it leave it as soon
  // as they have made a checkpoint; the reply has those that have not. When all of them stay, it
  // says why, and an operator's next call tries again. NOT_FOUND: there is no such pserver.
  // FAILED_PRECONDITION: no other one can be used. For a call of the pserver itself (member_id),
  // ABORTED: another process has its rank; UNAVAILABLE: it is not registered.
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request,
                                                 absl::Time now);
  ClusterStatus GetStatus(absl::Time now);
  // Cancels all jobs, and tells the members to stop.
  void Shutdown(absl::Time now) { parts_->Shutdown(now); }

 private:
  // NOT_FOUND says how to list the jobs.
  absl::StatusOr<Job*> FindForOperator(const std::string& job_id) const;
  // OK while the state store takes records.
  absl::Status CheckStore() const;
  // OK when the process that asks to be drained is the living member of the rank.
  absl::Status CheckDrainsItself(const DrainPserverRequest& request) const;

  CoreParts* const parts_;
  const absl::Time started_;
};

}  // namespace sluice

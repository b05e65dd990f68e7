// The present attempt of a job: what its members are told (JobSpec), where it began, whether
// pservers must hold its tables, and how far it has come.
//
// An attempt begins at the beginning of the job or at a checkpoint. It has an instance, which no
// other attempt of any job has. A change of its route or of its ranks raises the generation.
//
// Invariants: the instances are those of all attempts, with the present one last.
//
// Memory: a settled job keeps its run and its newest steps for callers that still follow it, until
// Archive.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job_opening.h"
#include "scheduler/job/job_ranks.h"
#include "scheduler/job/job_run.h"
#include "scheduler/job/resume_point.h"
#include "scheduler/job/step_reports.h"

namespace sluice {

class JobAttempt {
 public:
  // The route is set when the job starts; the config names checkpoint.dir.
  const JobSpec& spec() const { return spec_; }
  const std::vector<uint64_t>& instances() const { return instances_; }
  // Where the attempt begins; null: at the beginning of the job.
  const ResumePoint* point() const { return point_.get(); }
  // True while pservers must hold its tables.
  bool hosted() const { return hosted_; }
  const JobOpening& opening() const { return opening_; }
  JobOpening& opening() { return opening_; }
  // While RUNNING, and afterwards; else null.
  JobRun* run() { return run_.get(); }
  const JobRun* run() const { return run_.get(); }
  // While RECOVERING: the figures of the attempt before; else null.
  const JobResult* before() const { return before_ ? &*before_ : nullptr; }
  // The steps of all attempts, from the first run on; null before.
  StepReports* steps() { return steps_ ? &*steps_ : nullptr; }
  const StepReports* steps() const { return steps_ ? &*steps_ : nullptr; }

  // Sets what follows from the submission. The instance stays.
  void Specify(JobSpec spec, std::unique_ptr<const ResumePoint> point);
  void RestoreInstances(std::vector<uint64_t> instances) { instances_ = std::move(instances); }
  void SetInstance(uint64_t instance);
  void SetWorkerNum(uint32_t worker_num) { spec_.set_worker_num(worker_num); }
  // The next attempt begins at `point`. Call before its members are placed.
  // REQUIRES: no run uses the former point.
  void SetPoint(std::unique_ptr<const ResumePoint> point) { point_ = std::move(point); }
  // Tells the members to read the checkpoint of the point, if there is one.
  void TellPoint();

  // Fills num_shards and route for these pservers, and raises the generation. `former`: by index in
  // the route of the attempt before, the present addresses of its pservers; empty: not used any
  // more. `ranks`: of the pservers in the cluster.
  using Place = std::function<absl::Status(const std::vector<std::string>& pservers, JobSpec*)>;
  absl::Status PlaceTables(const Place& place, const std::vector<std::string>& former,
                           const std::vector<std::string>& addresses,
                           absl::Span<const uint32_t> ranks);
  // By pserver; empty: no replicas.
  void SetFollowers(absl::Span<const uint32_t> followers);
  // The pservers are asked to open the tables.
  void Open(absl::Time now);
  // The attempt begins to run. The config outlives the run.
  void Run(const JobRun::Options& options, absl::Time now);
  // Continues the attempt of an earlier scheduler. The run uses the point.
  void Adopt(const JobSpec& spec, std::unique_ptr<const ResumePoint> point,
             std::unique_ptr<JobRun> run);
  // Sets the figures of earlier attempts, which ran under another scheduler.
  void RestoreBefore(JobResult before) { before_ = std::move(before); }

  // Pservers of the route, as indices, that are lost and whose shards no other one has opened.
  void SetVacant(const std::vector<uint32_t>& vacant);
  // The pserver at this address takes over the shards of pserver `index`.
  void TakeOver(uint32_t index, const std::string& address, Takeover takeover);
  // Raises the generation, and names the present life of every rank.
  void RaiseGeneration(absl::Span<const RankSlot> slots);

  // The attempt is over, and the job waits for members of the next one. Its run goes away. An
  // output folder that is ready stays so.
  void End();
  // The job is over, and no member needs the tables any more.
  void DropTables() { hosted_ = false; }
  void Archive();

  JobSpec* MutableSpecForTest() { return &spec_; }

 private:
  JobSpec spec_;
  std::vector<uint64_t> instances_;
  std::unique_ptr<const ResumePoint> point_;
  bool hosted_ = false;
  JobOpening opening_;
  std::unique_ptr<JobRun> run_;  // refers to the point
  std::optional<JobResult> before_;
  std::optional<StepReports> steps_;
};

}  // namespace sluice

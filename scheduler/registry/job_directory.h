// Holds all jobs that the scheduler knows: by id, in order of submission, and by stage.
//
// Invariants:
// - A job is queued (in JobQueue), active (started or ended, but not settled) or settled.
// - Pointers to a job stay valid until it is forgotten.
//
// Memory: keeps the newest kWholeJobs settled jobs whole, and the newest kRememberedJobs as their
// status; older ones are forgotten.
//
// Thread safety: one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"

namespace sluice {

class JobDirectory {
 public:
  static constexpr size_t kWholeJobs = 8;
  static constexpr size_t kRememberedJobs = 100;

  // REQUIRES: no known job has the same id.
  Job* Add(std::unique_ptr<Job> job);
  // Notes that the job has left the queue, by starting or by ending there.
  // REQUIRES: it is neither active nor settled.
  void Activate(Job* job) { active_.push_back(job); }
  // Moves jobs that have settled out of the active ones, then archives and forgets old jobs.
  // Returns the ids of the forgotten jobs.
  std::vector<std::string> Settle(const Membership& members);

  // Null when no job has this id.
  Job* Find(const std::string& job_id) const;
  // In order of submission.
  const std::vector<std::unique_ptr<Job>>& all() const { return jobs_; }
  const std::vector<Job*>& active() const { return active_; }
  // The jobs that the member serves and that are not settled.
  std::vector<Job*> ServedBy(const Member& member) const;
  // The same, and the job that waits for members and has reserved the worker, which has no rank yet.
  std::vector<Job*> NeedingMember(const Member& member) const;
  // ALREADY_EXISTS names a job that has not ended and writes to the same trace file or folder.
  absl::Status CheckOutputs(const JobConfig& config) const;

 private:
  void Forget(const std::string& job_id);

  std::vector<std::unique_ptr<Job>> jobs_;
  absl::flat_hash_map<std::string, Job*> by_id_;
  std::vector<Job*> active_;
  std::deque<Job*> settled_;  // the oldest first
};

}  // namespace sluice

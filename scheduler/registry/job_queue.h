// Holds the queued jobs, and decides which may start now and why the others wait.
//
// Strictly first in, first out: a small job never overtakes a large one, so that no job starves.
//
// Cost: a decision is made only when members, free workers or the queue itself have changed. It
// looks at all jobs when the queue has changed, and otherwise only at the head: while the head
// waits, members change nothing for the jobs behind it.
//
// Memory: at most kMaxJobs.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "scheduler/job/job.h"

namespace sluice {

struct QueuedJob {
  std::string job_id;
  uint32_t worker_num = 0;
  std::string program;  // ProgramConfig.digest; empty: a compiled model
};

struct ClusterView {
  struct Workers {
    uint32_t free = 0;
    uint32_t alive = 0;
  };
  // Workers that are no program.
  uint32_t free_workers = 0;
  uint32_t alive_workers = 0;
  std::map<std::string, Workers> programs;    // the others, by RegisterRequest.program
  std::vector<std::string> missing_pservers;  // described, e.g. "pserver 1 (10.0.0.2:5000)"
};

struct QueueDecision {
  bool start = false;
  // The job waits for members that are absent (rather than for busy ones).
  bool members_absent = false;
  std::string reason;  // why the job does not start
};

// Returns one decision per job, in order. Pure.
std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& queue, ClusterView cluster);

class JobQueue {
 public:
  static constexpr size_t kMaxJobs = 1000;

  bool full() const { return jobs_.size() >= kMaxJobs; }
  size_t size() const { return jobs_.size(); }
  // `job` stays valid while it is queued.
  // REQUIRES: !full().
  void Add(Job* job);
  // False when the job is not queued.
  bool Remove(Job* job);

  // To be called when members or free workers have changed, or time has passed.
  void MembersChanged() { due_ = true; }
  bool due() const { return due_ && !jobs_.empty(); }
  struct Decided {
    Job* job = nullptr;
    QueueDecision decision;
  };
  // Decides on the head, or on all jobs when the queue has changed; afterwards the queue is not
  // due. The caller removes the jobs that start, which makes the queue due again.
  std::vector<Decided> Decide(ClusterView cluster);

 private:
  std::deque<Job*> jobs_;
  bool due_ = false;
  bool changed_ = false;  // jobs_ has changed since the last Decide
};

}  // namespace sluice

// The queued jobs: which of them may start now, and why the others wait.
//
// Strictly first in, first out: a small job never overtakes a large one, so that no job starves.
//
// Cost: the queue is decided on only when members, free workers or the queue itself have changed.
// Unless the queue itself has, only its head is: members change nothing for the jobs behind a head
// that waits.
//
// Memory: at most kMaxJobs.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "scheduler/job.h"

namespace sluice {

struct QueuedJob {
  std::string job_id;
  uint32_t worker_num = 0;
};

struct ClusterView {
  uint32_t free_workers = 0;
  uint32_t alive_workers = 0;
  std::vector<std::string> missing_pservers;  // described, e.g. "pserver 1 (10.0.0.2:5000)"
};

struct QueueDecision {
  bool start = false;
  // It waits for members that are not there at all (rather than for busy ones).
  bool members_absent = false;
  std::string reason;  // when it does not start
};

// One decision a job, in order. Pure.
std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& queue, ClusterView cluster);

class JobQueue {
 public:
  static constexpr size_t kMaxJobs = 1000;

  bool full() const { return jobs_.size() >= kMaxJobs; }
  size_t size() const { return jobs_.size(); }
  // `job` stays valid while it is queued. REQUIRES: !full().
  void Add(Job* job);
  // False when the job is not queued.
  bool Remove(Job* job);

  // Members or free workers have changed, or time has passed.
  void MembersChanged() { due_ = true; }
  bool due() const { return due_ && !jobs_.empty(); }
  struct Decided {
    Job* job = nullptr;
    QueueDecision decision;
  };
  // Decides on the head, or on all jobs when the queue has changed; afterwards it is not due. The
  // caller removes those that start, whereby it is due again.
  std::vector<Decided> Decide(ClusterView cluster);

 private:
  std::deque<Job*> jobs_;
  bool due_ = false;
  bool changed_ = false;  // jobs_, since the last Decide
};

}  // namespace sluice

#include "scheduler/registry/job_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

std::string WorkersReason(const QueuedJob& job, const ClusterView::Workers& workers) {
  std::string reason =
      absl::StrCat("waits for ", job.worker_num, " free worker", job.worker_num == 1 ? "" : "s",
                   job.program.empty() ? "" : " of its program", ", ", workers.free,
                   workers.free == 1 ? " is free" : " are free");
  if (workers.alive < job.worker_num) {
    absl::StrAppend(&reason, "; ", workers.alive,
                    workers.alive == 1 ? " is registered" : " are registered");
  }
  return reason;
}

// Only workers of its program compute a program's network, and they compute no other.
ClusterView::Workers WorkersFor(const QueuedJob& job, const ClusterView& cluster) {
  if (job.program.empty()) return {cluster.free_workers, cluster.alive_workers};
  const auto found = cluster.programs.find(job.program);
  return found == cluster.programs.end() ? ClusterView::Workers() : found->second;
}

void TakeWorkers(const QueuedJob& job, ClusterView* cluster) {
  uint32_t& free =
      job.program.empty() ? cluster->free_workers : cluster->programs[job.program].free;
  free -= job.worker_num;
}

}  // namespace

std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& queue, ClusterView cluster) {
  std::vector<QueueDecision> decisions;
  const std::string* blocked_by = nullptr;
  for (const QueuedJob& job : queue) {
    QueueDecision decision;
    const ClusterView::Workers workers = WorkersFor(job, cluster);
    // Strictly in order: a small job that overtook would let a large one wait for ever.
    if (blocked_by != nullptr) {
      decision.reason = absl::StrCat("waits for job ", *blocked_by, " ahead of it in the queue");
    } else if (!cluster.missing_pservers.empty()) {
      decision.members_absent = true;
      decision.reason =
          absl::StrCat("waits for ", absl::StrJoin(cluster.missing_pservers, " and "));
    } else if (workers.free < job.worker_num) {
      decision.members_absent = workers.alive < job.worker_num;
      decision.reason = WorkersReason(job, workers);
    } else {
      decision.start = true;
      // The view is a copy. The jobs behind see what is left.
      TakeWorkers(job, &cluster);
    }
    if (!decision.start && blocked_by == nullptr) blocked_by = &job.job_id;
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

void JobQueue::Add(Job* job) {
  jobs_.push_back(job);
  due_ = changed_ = true;
}

bool JobQueue::Remove(Job* job) {
  const auto it = std::find(jobs_.begin(), jobs_.end(), job);
  if (it == jobs_.end()) return false;
  jobs_.erase(it);
  // The jobs behind it move up, so all positions must be decided again.
  due_ = changed_ = true;
  return true;
}

std::vector<JobQueue::Decided> JobQueue::Decide(ClusterView cluster) {
  const size_t n = std::min(jobs_.size(), changed_ ? jobs_.size() : 1);
  due_ = changed_ = false;
  std::vector<QueuedJob> queue;
  for (size_t i = 0; i < n; ++i) {
    queue.push_back({jobs_[i]->id(), jobs_[i]->spec().worker_num(),
                     jobs_[i]->config().model().program().digest()});
  }
  std::vector<QueueDecision> decisions = DecideQueue(queue, std::move(cluster));
  std::vector<Decided> decided;
  for (size_t i = 0; i < n; ++i) decided.push_back({jobs_[i], std::move(decisions[i])});
  return decided;
}

}  // namespace sluice

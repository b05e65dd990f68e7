#include "scheduler/job_queue.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

std::string WorkersReason(const QueuedJob& job, const ClusterView& cluster) {
  std::string reason = absl::StrCat("waits for ", job.worker_num, " free worker",
                                    job.worker_num == 1 ? "" : "s", ", ", cluster.free_workers,
                                    cluster.free_workers == 1 ? " is free" : " are free");
  if (cluster.alive_workers < job.worker_num) {
    absl::StrAppend(&reason, "; ", cluster.alive_workers,
                    cluster.alive_workers == 1 ? " is registered" : " are registered");
  }
  return reason;
}

}  // namespace

std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& queue, ClusterView cluster) {
  std::vector<QueueDecision> decisions;
  const std::string* blocked_by = nullptr;
  for (const QueuedJob& job : queue) {
    QueueDecision decision;
    if (blocked_by != nullptr) {
      decision.reason = absl::StrCat("waits for job ", *blocked_by, " ahead of it in the queue");
    } else if (!cluster.missing_pservers.empty()) {
      decision.members_absent = true;
      decision.reason =
          absl::StrCat("waits for ", absl::StrJoin(cluster.missing_pservers, " and "));
    } else if (cluster.free_workers < job.worker_num) {
      decision.members_absent = cluster.alive_workers < job.worker_num;
      decision.reason = WorkersReason(job, cluster);
    } else {
      decision.start = true;
      cluster.free_workers -= job.worker_num;
    }
    if (!decision.start && blocked_by == nullptr) blocked_by = &job.job_id;
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

}  // namespace sluice

// Async and Geo: leases tasks from the scheduler and reports those that are trained.
//
// Thread safety: guarded by the owner's lock, except Trained and has_reports, which are safe from
// any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "worker/context/job_context.h"

namespace sluice {

class TaskLeases {
 public:
  // How many tasks a rank asks for at a time: more and more while they last for less than a second,
  // so that a job of many short tasks does not call the scheduler, which keeps a record of each
  // call, all the time.
  struct Pace {
    uint32_t wants = 1;
    absl::Time asked_at = absl::InfinitePast();  // for the last tasks that it got
  };
  // `pace`: continues from one epoch to the next; outlives this. Null: begins anew.
  TaskLeases(const JobContext& context, uint32_t epoch, Pace* pace);

  // The next task, leased already or leased now. Nothing: the epoch has no more. Asking the
  // scheduler also reports what Trained has recorded.
  absl::StatusOr<std::optional<DataTask>> Next();
  // The task that Next returns then, if it is leased already; null: that is not known.
  const DataTask* upcoming() const { return leased_.empty() ? nullptr : &leased_.front(); }
  // Gives up the tasks that are leased and not returned by Next yet.
  void Drop() { leased_.clear(); }
  // Records that all pushes of the task are acknowledged. `examples`: of the task, from its
  // beginning on; batches when the program gives the data.
  void Trained(uint64_t task_id, uint64_t examples);
  // Whether trained tasks are not reported yet.
  bool has_reports();

 private:
  using Reports = std::deque<std::pair<uint64_t, uint64_t>>;  // task, examples
  absl::StatusOr<NextTaskReply> AskScheduler(const Reports& finished);
  // The tasks that the next request reports.
  Reports TakeReports();

  const JobContext& context_;
  const uint32_t epoch_;
  uint64_t calls_ = 0;  // numbers the requests of the epoch
  Pace own_pace_;
  Pace* const pace_;
  std::deque<DataTask> leased_;  // to be read next

  Mutex mutex_;
  Reports trained_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

// Supplies the batches of an epoch, from lanes (sync: lane_batches.h) or leased tasks (async, Geo).
//
// Thread safety: guarded by the owner's lock, except where a method says otherwise. Fills may run
// concurrently with each other and with later calls, without the lock.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "common/base/mutex.h"
#include "model/data/example_cache.h"
#include "model/data/permutation.h"
#include "worker/batches/pool.h"
#include "worker/batches/prepared_batch.h"
#include "worker/context/job_context.h"

namespace sluice {

class BatchSource {
 public:
  // Fills batch, last_of_task and task_examples. It keeps the examples that it copies alive, but
  // must not run after its source is gone. Statuses: Batch::Append.
  using Fill = std::function<absl::Status(PreparedBatch*)>;

  virtual ~BatchSource() = default;
  // Decides which examples the next batch has, and reads them if they are not read yet. Empty at
  // the end of the epoch.
  virtual absl::StatusOr<Fill> Next() = 0;
  // Examples left out by drop_last so far.
  virtual uint64_t dropped() const = 0;
};

// Async and Geo: leases tasks from the scheduler, shuffles each by (seed, epoch, task) and cuts it
// into batches.
class TaskBatches : public BatchSource {
 public:
  // How many tasks a rank asks for at a time: more and more while they last for less than a second,
  // so that a job of many short tasks does not call the scheduler, which keeps a record of each
  // call, all the time.
  struct Pace {
    uint32_t wants = 1;
    absl::Time asked_at = absl::InfinitePast();  // for the last tasks that it got
  };
  // `pace`: continues from one epoch to the next; outlives this. Null: begins anew.
  TaskBatches(const JobContext& context, uint32_t epoch, Pace* pace = nullptr);
  absl::StatusOr<Fill> Next() override;
  uint64_t dropped() const override { return dropped_; }

  // Records that all pushes of the task are acknowledged; the next call to the scheduler reports
  // it. Safe from any thread.
  void TaskTrained(uint64_t task_id, uint64_t examples);
  // Gives up what is leased and not trained, since training ends early.
  // REQUIRES: the readers have stopped.
  void DropLeased();
  // Reports the tasks not reported yet. True when the scheduler leased another task instead of
  // ending the epoch: continue with Next.
  // REQUIRES: the readers have stopped.
  absl::StatusOr<bool> ReportTrained();

 private:
  // False: the epoch is done.
  absl::StatusOr<bool> LeaseTask();
  using Trained = std::deque<std::pair<uint64_t, uint64_t>>;  // task, examples
  absl::StatusOr<NextTaskReply> AskScheduler(const Trained& finished);
  // The tasks that the next request reports.
  Trained TakeTrained();
  absl::Status LoadTask(const DataTask& task);

  const JobContext& context_;
  const uint32_t epoch_;
  struct Loaded {
    DataTask task;
    Batch parsed;       // keeps the examples when no cache does
    Examples examples;  // of the task
    std::unique_ptr<Permutation> order;
  };
  absl::Status FillPart(const Loaded& loaded, uint64_t begin, uint64_t end,
                        PreparedBatch* prepared) const;

  Pool<Loaded> pool_;
  std::shared_ptr<const Loaded> loaded_;  // null: no task is leased
  uint64_t next_ = 0;                     // first offset not yet handed out
  uint64_t first_ = 0;                    // next_ at the beginning of this task
  uint64_t dropped_ = 0;
  uint64_t calls_ = 0;  // numbers the requests of the epoch
  Pace own_pace_;
  Pace* const pace_;
  std::deque<DataTask> leased_;  // to be read next

  Mutex mutex_;
  Trained trained_ ABSL_GUARDED_BY(mutex_);
};

// FAILED_PRECONDITION when `bad` has more malformed lines than data.max_bad_lines. `most`: as in
// TooManyBadLines.
absl::Status CheckBadLines(const JobContext& context, const BadLines& bad, bool most);

// Seeds the order of the examples in an epoch.
uint64_t EpochSeed(const JobContext& context, uint32_t epoch);

}  // namespace sluice

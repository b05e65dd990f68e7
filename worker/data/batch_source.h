// Supplies the batches of an epoch, from lanes (sync: lane_batches.h) or leased tasks (async, Geo).
//
// Thread safety: guarded by the owner's lock, except where a method says otherwise. Fills may run
// concurrently with each other and with later calls, without the lock.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "model/data/example_cache.h"
#include "model/data/permutation.h"
#include "worker/batches/pool.h"
#include "worker/batches/prepared_batch.h"
#include "worker/context/job_context.h"
#include "worker/data/task_leases.h"

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
  // Nobody needs more batches: a Next that waits for another process or the program returns
  // CANCELLED soon, and so do later ones. Safe from any thread.
  virtual void Cancel() {}
};

// Async and Geo: the batches of tasks that the scheduler leases to the rank.
class TaskSource : public BatchSource {
 public:
  // Records that all pushes of the task are acknowledged; the next call to the scheduler reports
  // it. Safe from any thread.
  virtual void TaskTrained(uint64_t task_id, uint64_t examples) = 0;
  // Gives up what is leased and not trained, since training ends early.
  // REQUIRES: the readers have stopped.
  virtual void DropLeased() = 0;
  // Reports the tasks not reported yet. True when the scheduler leased another task instead of
  // ending the epoch: continue with Next.
  // REQUIRES: the readers have stopped, and all pushes are acknowledged.
  virtual absl::StatusOr<bool> ReportTrained() = 0;
};

// Shuffles each task by (seed, epoch, task) and cuts it into batches.
class TaskBatches : public TaskSource {
 public:
  using Pace = TaskLeases::Pace;
  // `pace`: continues from one epoch to the next; outlives this. Null: begins anew.
  TaskBatches(const JobContext& context, uint32_t epoch, Pace* pace = nullptr);
  absl::StatusOr<Fill> Next() override;
  uint64_t dropped() const override { return dropped_; }

  void TaskTrained(uint64_t task_id, uint64_t examples) override {
    leases_.Trained(task_id, examples);
  }
  void DropLeased() override;
  absl::StatusOr<bool> ReportTrained() override;

 private:
  // False: the epoch is done.
  absl::StatusOr<bool> LeaseTask();
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
  TaskLeases leases_;
};

// FAILED_PRECONDITION when `bad` has more malformed lines than data.max_bad_lines. `most`: as in
// TooManyBadLines.
absl::Status CheckBadLines(const JobContext& context, const BadLines& bad, bool most);

// Seeds the order of the examples in an epoch.
uint64_t EpochSeed(const JobContext& context, uint32_t epoch);

}  // namespace sluice

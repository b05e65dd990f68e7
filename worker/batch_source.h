// Where the batches of an epoch come from: the global permutation (sync) or leased tasks (async,
// Geo).
//
// Thread safety: one thread (the reader), but for what is said.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "common/base/mutex.h"
#include "model/data/example_set.h"
#include "worker/job_context.h"
#include "worker/prepared_batch.h"

namespace sluice {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Fills batch, last_of_task and task_examples. False at the end of the epoch.
  virtual absl::StatusOr<bool> Next(PreparedBatch* prepared) = 0;
  // Examples left out by drop_last so far.
  virtual uint64_t dropped() const = 0;
};

// Sync: this rank's slices of the global batches, in the order pi(seed, epoch) of all examples.
class PermutedBatches : public BatchSource {
 public:
  // `examples`: all training examples (PER_RANK_FILES: this rank's); outlives the source.
  PermutedBatches(const JobContext& context, const ExampleSet* examples, uint32_t epoch,
                  uint64_t steps);
  absl::StatusOr<bool> Next(PreparedBatch* prepared) override;
  uint64_t dropped() const override;

 private:
  const JobContext& context_;
  const ExampleSet* const examples_;
  const Permutation order_;
  const uint64_t steps_;
  const bool per_rank_;
  const uint64_t global_batch_;
  uint64_t step_ = 0;
};

// Async and Geo: tasks leased from the scheduler, each shuffled by (seed, epoch, task) and cut in
// batches.
class TaskBatches : public BatchSource {
 public:
  TaskBatches(const JobContext& context, uint32_t epoch);
  absl::StatusOr<bool> Next(PreparedBatch* prepared) override;
  uint64_t dropped() const override { return dropped_; }

  // All pushes of the task are acknowledged: the scheduler hears of it with the next call. Any
  // thread.
  void TaskTrained(uint64_t task_id, uint64_t examples);
  // Reports what is left. True when the scheduler leased one more task instead of ending the epoch:
  // go on with Next. REQUIRES: the reader has stopped.
  absl::StatusOr<bool> ReportTrained();

 private:
  // False: the epoch is done.
  absl::StatusOr<bool> LeaseTask();
  absl::StatusOr<NextTaskReply> AskScheduler(uint64_t finished, uint64_t examples);
  absl::Status LoadTask(const DataTask& task);

  const JobContext& context_;
  const uint32_t epoch_;
  DataTask task_;
  bool leased_ = false;
  Batch parsed_;       // keeps the examples when no cache does
  Examples examples_;  // of the task
  std::unique_ptr<Permutation> order_;
  uint64_t next_ = 0;  // first offset not yet handed out
  uint64_t dropped_ = 0;
  uint64_t calls_ = 0;  // numbers the requests of the epoch

  Mutex mutex_;
  std::deque<std::pair<uint64_t, uint64_t>> trained_ ABSL_GUARDED_BY(mutex_);  // task, examples
};

// Loads or maps all lines of `files` (sync). FAILED_PRECONDITION when more than max_bad_lines are
// malformed.
absl::Status LoadExamples(const JobContext& context, const std::vector<std::string>& files,
                          ExampleSet* examples, BadLines* bad);

// Files this rank looks at: all in sync with GLOBAL, else those with index modulo worker_num =
// rank.
absl::StatusOr<std::vector<std::string>> FilesOfRank(const JobContext& context);

}  // namespace sluice

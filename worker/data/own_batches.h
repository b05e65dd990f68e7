// The batches of an epoch that the program gives, as trainers need them: so many steps in sync, and
// as a leased task in async.
//
// Thread safety: as BatchSource.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "worker/data/own_data.h"
#include "worker/data/task_leases.h"

namespace sluice {

// Sync: exactly one batch a step, empty ones after the last batch of the source. Batches beyond the
// epoch's steps are never asked for.
class OwnSteps : public BatchSource {
 public:
  // The batches of the first `first_step` steps are left out. `context` outlives it, and
  // context.own_data gives the batches.
  OwnSteps(const JobContext& context, uint32_t epoch, uint64_t steps, uint64_t first_step = 0);
  absl::StatusOr<Fill> Next() override;
  uint64_t dropped() const override { return 0; }
  void Cancel() override { stopped_ = true; }

 private:
  const JobContext& context_;
  const uint32_t epoch_;
  const uint64_t steps_;
  std::atomic<bool> stopped_{false};     // a flag only; it guards no data
  std::unique_ptr<BatchSource> source_;  // null: not opened yet
  uint64_t step_;
  bool ended_ = false;  // the source has no more batches
};

// Async: a rank's epoch is one task, whose offsets are numbers of batches.
class OwnTasks : public TaskSource {
 public:
  // `pace`: as in TaskLeases.
  OwnTasks(const JobContext& context, uint32_t epoch, TaskLeases::Pace* pace = nullptr);
  absl::StatusOr<Fill> Next() override;
  uint64_t dropped() const override { return 0; }
  void Cancel() override { stopped_ = true; }
  void TaskTrained(uint64_t task_id, uint64_t batches) override {
    leases_.Trained(task_id, batches);
  }
  void DropLeased() override;
  absl::StatusOr<bool> ReportTrained() override;

 private:
  // Leases the next task and opens the source where it continues. False: the epoch has no more.
  absl::StatusOr<bool> OpenNext();
  // The next batch of the open source. Empty: it has no more, or the epoch has enough.
  absl::StatusOr<Fill> NextOfTask();

  const JobContext& context_;
  const uint32_t epoch_;
  TaskLeases leases_;
  std::atomic<bool> stopped_{false};     // a flag only; it guards no data
  std::unique_ptr<BatchSource> source_;  // null: no task is open
  uint64_t task_ = 0;
  uint64_t next_ = 0;  // number of the next batch in the task
  // Tasks whose last batch is not known to be acknowledged: a source does not say which batch is
  // its last one.
  std::deque<std::pair<uint64_t, uint64_t>> ended_;  // task, batches
};

}  // namespace sluice

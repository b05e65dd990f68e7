// The checkpoint that a rank is asked for, and this rank's part of the newest one.
//
// The scheduler's wish comes with any answer to a report (WorkerAssignment.checkpoint). Sync: rank
// 0 names it in the commit of a step, by itself if the wish is for multiples of
// checkpoint.every_steps. Every rank learns from the pservers that the cut was made, and records
// its part between that step and the next one. At the end of an epoch, and after the loss of a rank
// without which the job continues, ranks are asked for their part after the last step that closes.
// A rank may have pushed the next step by then, so it keeps its state after the steps that have
// closed. Async: every rank is asked, and records its part between two steps; the pservers cut
// later. Geo: likewise, but the rank then waits ("parked") until the pservers have begun their
// cuts, and says when it continues. The newest part goes with every report, so a report that is
// lost costs nothing.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class WorkerCuts {
 public:
  // Calls `report_soon` when there is something new to report; may be null.
  WorkerCuts(std::string job_id, uint32_t rank, uint64_t incarnation,
             std::function<void()> report_soon);

  // Takes the scheduler's request; number 0: none.
  void SetWanted(const WorkerCheckpoint& wanted);
  // Sync, rank 0: the number to name in the commit of global step `step` (from 1); 0: none. Each
  // number is given once, and none after a later one.
  uint64_t ForCommit(uint64_t step);
  // The number that ForCommit gave last, and for which step; 0: none.
  struct Named {
    uint64_t number = 0, step = 0;
  };
  Named named() const;
  // Whether this rank has no part of checkpoint `number` yet, nor of a later one. False for 0.
  bool IsNew(uint64_t number) const;
  // Records this rank's part of checkpoint `number`. `step`: as WorkerCut.step. No effect unless
  // IsNew(number).
  void Record(uint64_t number, uint64_t step, WorkerState state);

  // Writes the files of the dense tables that this worker keeps, for checkpoint `number`.
  using TablesSaved = std::function<void(const absl::StatusOr<std::vector<SavedFile>>& files)>;
  using SaveTables = std::function<void(uint64_t number, TablesSaved done)>;
  // Sync: keeps this rank's state after global step `step`, the newest that has closed, in place of
  // an earlier one. Records it when the scheduler asks for the part after this step, with the files
  // of `save` if the scheduler wants them of this rank. `save` may be null, and runs on any thread:
  // then no other step closes.
  void KeepState(uint64_t step, WorkerState state, SaveTables save = nullptr);

  // Async and Geo: the checkpoint that this rank is asked for and has no part of; 0: none. Cheap
  // enough for every step.
  uint64_t asked() const { return asked_.load(std::memory_order_relaxed); }
  WorkerCheckpoint wanted() const;
  // Geo: as Record, or what kept the rank from making its part. After RecordParked the rank must
  // not change anything before it calls AwaitRelease or GoOn.
  void RecordParked(uint64_t number, uint64_t step, WorkerState state);
  void RecordError(uint64_t number, const std::string& error);
  // Waits until the parked rank is released, its checkpoint is no longer wanted, or *cancelled, and
  // then tells that it continues. The scheduler bounds the wait (limits.wait_s) as long as it
  // answers. When `silent` returns true (may be null), the rank continues with an error. That voids
  // the checkpoint, which is complete only when every rank has continued without one. Returns at
  // once when the rank is not parked.
  void AwaitRelease(const std::atomic<bool>* cancelled, const std::function<bool()>& silent);
  // Call when the scheduler lets the rank continue by starting the next phase.
  void GoOn();
  // The newest checkpoint that this rank knows of; 0: none.
  uint64_t newest() const;
  // Adds the newest part to a report.
  void AddTo(PollRequest* report) const;

 private:
  const std::string job_id_;
  const uint32_t rank_;
  const uint64_t incarnation_;
  const std::function<void()> report_soon_;

  void Record(WorkerCut cut);
  struct OrderedPart {
    WorkerCut part;
    SaveTables save;  // null: the part is complete
  };
  // The part that is asked for after a loss, if it is the state that was kept; nullopt: it is not,
  // or its files are being written.
  std::optional<OrderedPart> PartByOrder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(OrderedPart part);
  // Ends the parking, with an error unless it is empty.
  void EndParking(const std::string& error);

  // Relaxed: it does no harm if a request is seen one step later.
  std::atomic<uint64_t> asked_{0};
  mutable Mutex mutex_;
  CondVar changed_;  // of wanted_
  WorkerCheckpoint wanted_ ABSL_GUARDED_BY(mutex_);
  Named named_ ABSL_GUARDED_BY(mutex_);
  std::optional<WorkerCut> cut_ ABSL_GUARDED_BY(mutex_);  // the newest one
  uint64_t kept_step_ ABSL_GUARDED_BY(mutex_) = 0;        // 0: nothing is kept
  WorkerState kept_ ABSL_GUARDED_BY(mutex_);
  SaveTables save_ ABSL_GUARDED_BY(mutex_);
  uint64_t saving_ ABSL_GUARDED_BY(mutex_) = 0;  // the checkpoint for which it was called last
};

}  // namespace sluice

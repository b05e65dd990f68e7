// Async and Geo: the training data as pieces ("tasks") that are leased to the ranks of a job.
//
// A rank reads ahead, so it may hold several tasks. EPOCH_DONE tells a rank that no task is left to
// lease, even while it or others still train what they hold. The phase ends only when every rank
// has reported its end.
//
// Invariants:
// - A task has the same id and the same text in every epoch (task_cut.h).
// - Within an epoch a task is acknowledged at most once, and leased again only after Release.
// - A rank trains its tasks in the order in which they were leased to it. A position in one of them
//   thus says how far the rank has come in all of them.
//
// Memory: that of the TaskCut, and about 100 bytes for each task.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/task_cut.h"

namespace sluice {

// One rank in a checkpoint of an async or Geo job, once all pservers have begun their cuts.
struct RankPart {
  RankPosition held;   // the rank's least position over all shards, in its present life
  uint64_t tasks = 0;  // acknowledged data tasks of the epoch that `state` covers
  WorkerState state;
};

class DataTasks {
 public:
  struct Options {
    TaskCutOptions cut;
    uint64_t seed = 0;  // of the order in which tasks are leased
  };
  // Statuses as CutTasks.
  static absl::StatusOr<DataTasks> Create(const Options& options, std::vector<IndexedFile> files);

  const std::vector<DataTask>& tasks() const { return cut_.tasks; }  // tasks()[i].id() == i + 1
  const TaskCut& cut() const { return cut_; }

  // A checkpoint lies in `epoch`: only these tasks are left of it, each from its first_offset on.
  // DATA_LOSS when there is no such task. Call before that epoch begins.
  absl::Status Resume(uint32_t epoch, const google::protobuf::RepeatedPtrField<DataTask>& open);
  void BeginEpoch(uint32_t epoch);
  // Acknowledges the finished tasks, then leases as many as the rank wants, but leaves most of the
  // free ones to the others. A request that repeats its number gets the same answer again.
  // FAILED_PRECONDITION when the finished task was not leased to this rank in this epoch.
  absl::StatusOr<NextTaskReply> Next(const NextTaskRequest& request);
  // The number of the rank's last request of this epoch; 0: none.
  uint64_t LastNumber(uint32_t rank) const { return last_[rank].number; }

  // Leases no more tasks in this epoch, which ends before all of them are trained.
  void StopLeasing() { stopped_ = true; }

  // Ends the leases of a rank whose life is over. `held`: what every shard holds of that life in
  // this epoch; task_id 0: nothing. Its task_id must be one that was leased to that life, else
  // INVALID_ARGUMENT, and nothing changes. Tasks leased before that one are done. The rest of it,
  // from task_end on, and the tasks leased after it are free again, ahead of all others and in the
  // same order. The rank's next life numbers its requests from 1.
  absl::Status Release(uint32_t rank, const RankPosition& held);
  const std::vector<uint64_t>& LeaseOrderForTest(uint32_t rank) const { return order_[rank]; }

  // True when every rank has asked for a task of this epoch.
  bool AllAsked() const;
  // first_offset of a task all of whose examples are trained.
  static constexpr uint64_t kAllExamples = UINT64_MAX;
  // The tasks that a checkpoint leaves open, given what every shard holds of each rank in this
  // epoch (held.task_id 0: nothing). Training each from its first_offset skips no example and
  // repeats only what shards hold beyond `held`. A task is done, and not listed, only when the
  // rank's state covers it (RankPart.tasks): other tasks must be read again even if they are
  // trained, since what was read of them would be lost. INTERNAL when a rank holds a task that was
  // not leased to it.
  absl::StatusOr<std::vector<DataTask>> OpenAt(const std::vector<RankPart>& ranks) const;

  // OK when the rank has acknowledged every task that it leased, so that its epoch may end.
  absl::Status CheckEnded(uint32_t rank) const;
  // OK when every task of the epoch was acknowledged.
  absl::Status CheckComplete() const;

 private:
  enum class State : uint8_t { kFree, kLeased, kDone };
  struct Lease {
    State state = State::kFree;
    uint32_t rank = 0;
    uint64_t first_offset = 0;  // examples trained in this epoch by lives that are over
    uint64_t acknowledged = 0;  // it was the rank's first, second, ... of its present life; 0: none
    uint64_t examples = 0;      // trained when it was acknowledged, from its beginning on
  };
  struct LastAnswer {
    uint64_t number = 0;
    NextTaskReply reply;
  };

  absl::Status Acknowledge(const NextTaskRequest& request, uint64_t id, uint64_t examples);
  NextTaskReply LeaseTo(uint32_t rank);
  // The first example that the rank must train again of its task order[i]; `current`: the
  // place of the one in which it is. False when the task is done.
  bool IsOpen(const RankPart& part, const std::vector<uint64_t>& order, size_t i, size_t current,
              uint64_t* first_offset) const;

  bool pinned() const { return options_.cut.pinned; }

  Options options_;
  TaskCut cut_;
  std::vector<Lease> leases_;  // by task
  // Free tasks in order: one queue, or one per rank when pinned.
  std::vector<std::deque<uint32_t>> free_;
  std::vector<LastAnswer> last_;  // by rank
  // By rank: ids of the tasks leased to its present life in this epoch, in that order, acknowledged
  // ones too.
  std::vector<std::vector<uint64_t>> order_;
  std::vector<bool> asked_;             // by rank: it has asked for a task of this epoch
  std::vector<uint64_t> acknowledged_;  // by rank: tasks of its present life
  bool stopped_ = false;                // by StopLeasing
  uint32_t resumed_epoch_ = 0;
  std::optional<std::vector<DataTask>> resumed_;  // tasks left of resumed_epoch_
};

}  // namespace sluice

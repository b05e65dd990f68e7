// Async and Geo: the training data as pieces ("tasks") that are leased to the ranks of a job.
//
// A rank reads ahead, so it may hold several tasks. EPOCH_DONE tells a rank that no task is left to
// lease, even while it or others still train what they hold. The phase ends only when every rank
// has reported its end.
//
// Invariants:
// - The tasks of a file cover each of its bytes exactly once.
// - A task has the same id in every epoch.
// - Within an epoch a task is leased once and acknowledged at most once.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct IndexedFile {
  DataFile file;
  uint32_t rank = 0;  // the rank that reported the file
};

// 1/16 of each worker's share of the data, at least 64 KiB and at most 16 MiB.
uint64_t DefaultTaskBytes(uint64_t total_bytes, uint32_t worker_num);

class DataTasks {
 public:
  struct Options {
    uint32_t worker_num = 1;
    uint64_t task_bytes = 0;  // 0: the default rule
    uint64_t seed = 0;
    bool shuffle = true;
    bool pinned = false;  // PER_RANK_FILES: tasks go to the rank that reported the file
  };
  // INVALID_ARGUMENT when two ranks report the same file.
  static absl::StatusOr<DataTasks> Create(Options options, std::vector<IndexedFile> files);

  const std::vector<DataTask>& tasks() const { return tasks_; }  // tasks()[i].id() == i + 1

  void BeginEpoch(uint32_t epoch);
  // Acknowledges request.finished_task, then leases a task. A request that repeats its number gets
  // the same answer again. FAILED_PRECONDITION when the finished task was not leased to this rank
  // in this epoch.
  absl::StatusOr<NextTaskReply> Next(const NextTaskRequest& request);

  // OK when the rank has acknowledged every task that it leased, so that its epoch may end.
  absl::Status CheckEnded(uint32_t rank) const;
  // OK when every task of the epoch was acknowledged.
  absl::Status CheckComplete() const;

 private:
  enum class State : uint8_t { kFree, kLeased, kDone };
  struct Lease {
    State state = State::kFree;
    uint32_t rank = 0;
  };
  struct LastAnswer {
    uint64_t number = 0;
    NextTaskReply reply;
  };

  absl::Status Acknowledge(const NextTaskRequest& request);
  NextTaskReply LeaseTo(uint32_t rank);

  Options options_;
  std::vector<DataTask> tasks_;
  std::vector<uint32_t> owner_;  // by task: the rank that reported its file
  std::vector<Lease> leases_;    // by task
  // Free tasks in order: one queue, or one per rank when pinned.
  std::vector<std::deque<uint32_t>> free_;
  std::vector<LastAnswer> last_;  // by rank
};

}  // namespace sluice

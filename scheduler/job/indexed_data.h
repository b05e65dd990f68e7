// What the ranks report of a job's data in INDEX, and what the job makes of that: the tasks of an
// epoch (async and Geo), or its global steps and pieces (sync).
//
// Memory: the ranks' reports until INDEX has ended, then the tasks or the pieces.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/data_tasks.h"
#include "scheduler/job/resume_point.h"
#include "scheduler/job/seen_files.h"

namespace sluice {

class IndexedData {
 public:
  // `config`: effective; outlives it, as does `resume`, from which the job continues (null: from
  // the beginning). `global_batch`, sync: examples of a global step.
  IndexedData(const JobConfig* config, uint32_t worker_num, uint64_t global_batch,
              const ResumePoint* resume);

  // Takes a rank's report of INDEX. An error means that the job cannot continue, as in the next
  // two.
  absl::Status Take(uint32_t rank, const IndexReport& report);
  // Takes the files that a later life of the rank sees.
  absl::Status TakeSeen(uint32_t rank, const IndexReport& report) {
    return seen_.Take(rank, report);
  }
  // Ends INDEX: makes the tasks, or the steps and pieces.
  // REQUIRES: all ranks have reported.
  absl::Status End();
  // Makes the tasks again. part_bytes: as in TaskCutOptions; nullopt: chosen.
  absl::Status MakeTasks(std::optional<uint64_t> part_bytes);
  // Says that the tasks cannot be dealt although the data is to be shuffled; "": they can.
  std::string WarningOfOrder() const;
  // Frees everything, once the job is over.
  void Drop();

  // The training files that all ranks see.
  // REQUIRES: Take was called.
  const google::protobuf::RepeatedPtrField<SeenFile>& train_files() const { return seen_.train(); }
  // Async and Geo, from the end of INDEX; null otherwise.
  DataTasks* tasks() { return tasks_ ? &*tasks_ : nullptr; }
  const DataTasks* tasks() const { return tasks_ ? &*tasks_ : nullptr; }
  // Sync, when all ranks count the data together; else empty.
  const DataPieces& pieces() const { return pieces_; }
  // Sync: global steps of an epoch; 0 before the end of INDEX.
  uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  // Sync: examples of an epoch, malformed lines included; 0: not known.
  uint64_t examples() const { return examples_; }

 private:
  absl::Status EndSync();
  // All training files, as the ranks have reported them.
  std::vector<IndexedFile> Files() const;
  // `why`, with the checkpoint that the job continues from; OK when it is OK.
  absl::Status CannotResume(const absl::Status& why) const;
  // All ranks together count the data once, piece by piece.
  bool DealsPieces() const;

  const JobConfig& config_;
  const uint32_t worker_num_;
  const uint64_t global_batch_;
  const ResumePoint* const resume_;
  SeenFiles seen_;                  // the data files that all ranks see
  std::vector<IndexReport> index_;  // by rank, until INDEX has ended; without the files seen
  int64_t reported_pieces_ = 0;     // in index_
  std::optional<DataTasks> tasks_;
  DataPieces pieces_;
  uint64_t steps_per_epoch_ = 0;
  uint64_t examples_ = 0;
};

}  // namespace sluice

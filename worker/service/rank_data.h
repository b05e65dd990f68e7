// The data of one rank's run of a job: its files, or the program that gives it; what INDEX reports
// of it; and the batches of a training phase, which it hands to the trainer.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/data_source.h"
#include "worker/context/job_context.h"
#include "worker/data/batch_source.h"
#include "worker/data/own_data.h"
#include "worker/data/piece_reader.h"
#include "worker/train/trainer.h"

namespace sluice {

class RankData {
 public:
  // `context` and `env` outlive it. `host`: name of this host, for messages.
  RankData(JobContext* context, Env* env, std::string host);

  // Opens the readers of the data, or takes the program that gives it (null: this process is none),
  // and adds them to the context. FAILED_PRECONDITION: the program gives the data, and there is
  // none.
  absl::Status Open(const JobConfig& config, std::shared_ptr<const FeatureSchema> schema,
                    OwnData* own_data);
  // Looks at the data files, without reading them.
  absl::StatusOr<IndexReport> SeeFiles();
  absl::StatusOr<IndexReport> Index();
  // Call before each training phase. Checks also the files that this rank does not read: all epochs
  // must train on the same data.
  absl::Status Prepare();
  // Sync: trains the steps of the phase. Async and Geo: trains tasks until the epoch has no more.
  // *dropped: examples that were read and not trained.
  absl::Status TrainSteps(const EpochPlan& plan, const Phase& phase, Trainer* trainer,
                          uint64_t* dropped);
  absl::Status TrainTasks(const EpochPlan& plan, Trainer* trainer, uint64_t* dropped);

 private:
  // Counts the steps of an epoch, as far as they are known, when the program gives the data.
  absl::StatusOr<IndexReport> IndexSource(IndexReport report);

  JobContext& context_;
  Env* const env_;
  const std::string host_;
  std::unique_ptr<DataSource> files_;  // null when the program gives the data
  TaskBatches::Pace task_pace_;        // async and Geo
  PieceTable table_;                   // of the training data; pieces in sync only
  bool indexed_ = false;               // table_ lists the training data
};

}  // namespace sluice

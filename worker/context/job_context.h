// The objects and settings that all parts of one rank's run of a job share.
//
// Thread safety: immutable after INDEX. The objects behind the pointers have their own rules.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/parameter_client.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/config/mode.h"
#include "common/daemon/scheduler_client.h"
#include "model/data/data_files.h"
#include "model/data/data_source.h"
#include "model/data/example_cache.h"
#include "model/data/permutation.h"
#include "model/model.h"
#include "worker/context/training_end.h"
#include "worker/context/worker_cut.h"
#include "worker/context/worker_stats.h"
#include "worker/dense/dense_tables.h"
#include "worker/dense/rank_meetings.h"

namespace sluice {

class OwnData;

// All pointers outlive every part of the run.
struct JobContext {
  const JobSpec* spec = nullptr;
  Mode mode = Mode::kAsync;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  std::string pass;  // of the rank and incarnation
  const Model* model = nullptr;
  const DataSource* data = nullptr;        // null: the program gives the data
  OwnData* own_data = nullptr;             // that data; null: it comes from files
  std::shared_ptr<ExampleCache> cache;     // null: none
  std::shared_ptr<const DataFiles> files;  // all files of the job; set by INDEX
  DenseNet* net = nullptr;
  ParameterClient* client = nullptr;
  SchedulerClient* scheduler = nullptr;
  absl::Duration scheduler_patience = absl::Seconds(20);  // how long unanswered calls are retried
  std::function<bool()> scheduler_silent;                 // as in JobRunner::Options
  DenseTables* dense = nullptr;
  // Of the ranks that keep dense tables; null: pservers keep them, or the job only evaluates.
  RankMeetings* meetings = nullptr;
  WorkerStats* stats = nullptr;
  WorkerCuts* cuts = nullptr;        // null: this rank takes part in no checkpoints
  const TrainingEnd* end = nullptr;  // null: training never ends early
  // Tells the scheduler that the program of this rank has left its loop, after this many global
  // steps. ABORTED: the job goes to another attempt. Set when `end` is.
  std::function<absl::Status(uint64_t steps)> end_training;
  Clock* clock = nullptr;
  Env* env = nullptr;  // for the files of checkpoints and models
  // Where the lines of text on stores are kept that were counted, in the log folder; "": nowhere.
  std::string line_counts;
  Env* log_env = nullptr;  // for that file
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(const std::string&)> log;

  const JobConfig& config() const { return spec->config(); }
  // As TrainingEnd::Ends.
  bool ends_after(uint64_t steps) const { return end != nullptr && end->Ends(steps); }
  uint32_t worker_num() const { return spec->worker_num(); }
  // Each rank trains on files of its own, instead of sharing the pieces of all files.
  bool reads_own_files() const {
    return config().data().assignment() == DataConfig::PER_RANK_FILES;
  }
  size_t sparse_tables() const { return model->sparse_tables().size(); }
  // The layout of sparse_tables()[i] of the model.
  const TableLayout& sparse(size_t i) const { return *client->tables()[model->sparse_tables()[i]]; }
};

// How long a step waits for other members of the job: for the answer to a pull or push, and for the
// workers with which it exchanges gradients.
//
// A step may have to wait for a lost worker's replacement, which has its own bound. Each loss of a
// member starts the time again: the client restarts its timeout, and the workers form a new group.
// The time is for members that are slow. Those that have died or hang are found by their closed
// connections and by the scheduler's lease.
absl::Duration StepPatience(const JobConfig& config);
// Names the options that StepPatience adds up, for messages.
std::string StepPatienceOptions(const JobConfig& config);

}  // namespace sluice

// One rank's run of one job: follows the scheduler's phases until FINISH.
//
// Thread safety: Run on one thread; Cancel and progress from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/cpu_pin.h"
#include "common/base/mutex.h"
#include "worker/evaluator.h"
#include "worker/job_context.h"
#include "worker/piece_reader.h"
#include "worker/trainer.h"

namespace sluice {

class JobRunner {
 public:
  struct Options {
    WorkerAssignment assignment;
    uint64_t member_id = 0;
    std::string host;  // this one's name, for messages
    int threads = 1;
    ComputeDevice device;
    int slot = 0;  // of this worker in the cluster: which CPUs are its own with train.pin_threads
    SchedulerClient* scheduler = nullptr;                   // outlives the runner, as do the others
    absl::Duration scheduler_patience = absl::Seconds(20);  // with calls that have no answer
    Transport* transport = nullptr;
    Clock* clock = nullptr;
    uint64_t max_message_bytes = 0;  // of the data plane; 0: no limit
    std::function<void(const std::string&)> log;
  };
  explicit JobRunner(Options options);
  ~JobRunner();

  // Until the scheduler says FINISH or Cancel. What fails is reported to the scheduler, which fails
  // the job.
  absl::Status Run();
  // The scheduler took the job away.
  void Cancel();
  // Progress for a report (see WorkerStats), with what a blocked call waits for.
  WorkerProgress TakeProgress() { return WithWaiting(stats_.TakeProgress()); }
  void GiveBack(const WorkerProgress& lost) { stats_.GiveBack(lost); }
  TraceRecorder* trace() const { return trace_.get(); }  // null: the job asks for none
  WorkerProgress Progress() { return WithWaiting(stats_.Progress()); }
  uint64_t Examples() { return stats_.Examples(); }  // trained so far
  const std::string& job_id() const { return options_.assignment.job().job_id(); }
  uint32_t rank() const { return options_.assignment.rank(); }
  uint64_t incarnation() const { return options_.assignment.incarnation(); }

 private:
  WorkerProgress WithWaiting(WorkerProgress progress);
  void LogHowItComputes(const CpuPin* pin) const;  // null: not pinned
  absl::Status Prepare();
  absl::Status RunPhases();
  absl::StatusOr<Phase> NextPhase(const PhaseReport& report);
  absl::StatusOr<PhaseReport> RunPhase(const Phase& phase);
  absl::StatusOr<IndexReport> Index();
  absl::StatusOr<TrainReport> Train(const Phase& phase);
  absl::Status TrainTasks(const EpochPlan& plan, uint64_t* dropped);
  absl::Status TrainSteps(const EpochPlan& plan, const Phase& phase, uint64_t* dropped);
  absl::StatusOr<SaveReport> Save(const Phase& phase);

  const Options options_;
  std::atomic<bool> cancelled_{false};  // relaxed flag, read between steps
  const std::unique_ptr<TraceRecorder> trace_;
  WorkerStats stats_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<DenseNet> net_;
  JobContext context_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Evaluator> evaluator_;
  PieceTable table_;  // the training data; pieces in sync only

  Mutex mutex_;
  std::unique_ptr<ParameterClient> client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

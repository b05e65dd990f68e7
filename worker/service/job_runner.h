// One rank's run of one job: follows the scheduler's phases until FINISH.
//
// Thread safety: safe from any thread. Run is called once, on one thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "common/base/cpu_pin.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "model/model_list.h"
#include "worker/context/job_context.h"
#include "worker/data/own_data.h"
#include "worker/service/job_member.h"
#include "worker/service/make_dense_tables.h"
#include "worker/service/program_end.h"
#include "worker/service/rank_data.h"
#include "worker/train/evaluator.h"
#include "worker/train/trainer.h"

namespace sluice {

class JobRunner {
 public:
  struct Options {
    JobMember::Options member;          // whose rank this runs
    const ModelList* models = nullptr;  // required; with networks
    std::string host;                   // name of this host, for messages
    int threads = 1;
    ComputeDevice device;
    int slot = 0;  // this worker's slot in the cluster: decides its CPUs with train.pin_threads
    absl::Duration scheduler_patience = absl::Seconds(20);  // how long unanswered calls are retried
    // How long to wait for the job's next attempt after an error that a lost member may explain.
    absl::Duration attempt_patience = absl::Seconds(10);
    // True when the scheduler has not answered for so long that a parked Geo rank trains on. May be
    // null: never.
    std::function<bool()> scheduler_silent;
    // Gives the batches of a job whose program gives the data. Null: this process is no program.
    OwnData* own_data = nullptr;
    // Makes the engine for dense tables that workers keep. Null: jobs with such tables fail.
    std::function<absl::StatusOr<std::unique_ptr<Collective>>(const JobConfig& config)>
        make_collective;
    Env* env = nullptr;       // for the files of checkpoints and models
    std::string line_counts;  // JobContext
    Env* log_env = nullptr;   // JobContext
    // Called when a report should not wait for its time, such as after a cut. May be null.
    std::function<void()> report_soon;
    std::function<void(const std::string&)> log;
  };
  explicit JobRunner(Options options);
  ~JobRunner();

  // Runs until the scheduler says FINISH, or until Cancel. Reports an error to the scheduler, which
  // then fails the job. If the loss of a member may explain the error, the runner first waits for
  // Cancel: the scheduler may know of the loss only later, and then begins another attempt.
  absl::Status Run();
  // After Run has returned OK: not OK, with the scheduler's words, when the job is not done.
  const absl::Status& job_end() const { return job_end_; }
  // Called when the scheduler has taken the job away, and when the process stops.
  void Cancel();
  // The process cannot go on with the job for a reason of its own: Run ends soon and reports `why`,
  // which fails the job. The first call counts. False: too late, Run does not report it any more.
  bool Fail(absl::Status why);
  // Progress for a report (see WorkerStats), including what a blocked call waits for.
  WorkerProgress TakeProgress() { return WithWaiting(stats_.TakeProgress()); }
  void GiveBack(const WorkerProgress& lost) { stats_.GiveBack(lost); }
  // Call with the scheduler's latest request for this assignment.
  void SetCheckpoint(const WorkerCheckpoint& wanted) { cuts_.SetWanted(wanted); }
  // Call when the scheduler has said that training ends early.
  void SetEarlyEnd(const EarlyEnd& end) { end_.Set(end); }
  // As ProgramEnd::CancelJob.
  absl::Status CancelJob() { return end_.CancelJob(); }
  // Call when the scheduler's latest route has this generation. `cards`: for the ranks that keep
  // the dense tables.
  void NoteGeneration(uint64_t generation, const RankGroupCards& cards = RankGroupCards());
  // Adds this rank's part of the newest checkpoint to a report.
  void AddCut(PollRequest* report) const { cuts_.AddTo(report); }
  // Adds how far this rank is with the group of the ranks that keep the dense tables.
  void AddGroup(PollRequest* report) const;
  // Says which rank this is. False when it does not continue: cancelled, at its end, or waiting for
  // the job's next attempt.
  bool Holds(HeldJob* held) const;
  // ParameterClient::acknowledged. Safe from any thread.
  uint64_t Acknowledged() const;
  TraceRecorder* trace() const { return trace_.get(); }  // null: the job asks for no trace
  WorkerProgress Progress() { return WithWaiting(stats_.Progress()); }
  uint64_t Examples() { return stats_.Examples(); }  // trained so far
  const std::string& job_id() const { return member_.job_id(); }
  uint32_t rank() const { return member_.rank(); }
  uint64_t incarnation() const { return member_.incarnation(); }

 private:
  // What Run reports of Fail.
  absl::Status TakeFailure();
  WorkerProgress WithWaiting(WorkerProgress progress);
  void LogHowItComputes(const CpuPin* pin) const;  // null: not pinned
  absl::Status Prepare();
  // The dense tables of the job. `layouts`: of all tables.
  absl::StatusOr<JobDenseTables> MakeDense(TableLayouts layouts) const;
  absl::Status RunPhases();
  // Returns when the run is cancelled, or the error is not explained in time.
  void AwaitNextAttempt(const absl::Status& error);
  // `after`: the kind of the phase that has ended.
  absl::StatusOr<Phase> NextPhase(const PhaseReport& report, Phase::Kind after);
  absl::StatusOr<PhaseReport> RunPhase(const Phase& phase);
  ProgramEnd::Options EndOptions();
  // JobContext::end_training.
  absl::Status EndTraining(uint64_t steps);
  // Sync, after the training of the phase: the steps of the epoch that were made. All, unless
  // training has ended early.
  uint64_t StepsDone(const Phase& phase);
  // Adds to the report of a TRAIN phase what a checkpoint of its end needs.
  absl::Status DescribeEnd(const Phase& phase, PhaseReport* report);
  absl::StatusOr<TrainReport> Train(const Phase& phase);
  // Meets the other ranks that keep the dense tables, as far as the phase needs it.
  absl::Status MeetRanks(const Phase& phase);
  // Answers those who may wait for this rank between the end of its training and its report.
  absl::Status AnswerOthers();
  // Sets where a rank that has taken over continues the phase, in a job whose ranks close the steps
  // among themselves. ABORTED: that is not known.
  absl::Status ContinueWithRanks(Phase* phase);
  // Continues an epoch that an earlier run of the job began.
  absl::Status Resume(const Phase& phase);
  absl::StatusOr<SaveReport> Save(const Phase& phase);

  const JobMember member_;
  const Options options_;               // but for `member`
  std::atomic<bool> cancelled_{false};  // a flag only, read between steps; it guards no data
  std::atomic<bool> ended_{false};      // likewise: its phases are over, well or not
  absl::Status job_end_;                // as job_end()
  const std::unique_ptr<TraceRecorder> trace_;
  WorkerStats stats_;
  WorkerCuts cuts_;
  ProgramEnd end_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DenseNet> net_;
  JobContext context_;
  RankData data_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Evaluator> evaluator_;
  bool trained_ = false;  // this life has begun a training phase

  mutable Mutex mutex_;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // the latest that the scheduler has told
  RankGroupCards cards_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ParameterClient> client_ ABSL_GUARDED_BY(mutex_);
  JobDenseTables dense_ ABSL_GUARDED_BY(mutex_);
  DenseNet* cancelled_net_ ABSL_GUARDED_BY(mutex_) = nullptr;  // net_, for Cancel
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);               // of Fail
  bool failure_taken_ ABSL_GUARDED_BY(mutex_) = false;         // Run looks at it no more
};

}  // namespace sluice

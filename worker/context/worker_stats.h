// Measures where a worker's time goes and how far its training has come.
//
// Thread safety: safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/line_pace.h"
#include "common/base/mutex.h"
#include "common/daemon/trace_recorder.h"
#include "common/wire/train_position.h"
#include "model/data/data_source.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class BatchQueue;
class DenseNet;
struct LoggedValue;

// Tracks of a worker in the trace.
inline constexpr char kTrainerTrack[] = "training";
inline constexpr char kReaderTrack[] = "reading";

enum class Stage { kRead, kDedup, kPullWait, kCompute, kPushWait };

class WorkerStats {
 public:
  using Log = std::function<void(const std::string&)>;
  using Time = std::chrono::steady_clock::time_point;
  // Takes the figures of each `log_every` steps. Writes a line to `log` for each of the first 100
  // of them and then for one in 10 seconds (LinePace), and one when the device has no more room for
  // batches ahead. Stages and steps also become spans of `trace`, which outlives this object; null:
  // no trace.
  WorkerStats(std::string job_id, uint32_t rank, uint32_t log_every, Log log,
              TraceRecorder* trace = nullptr);

  void AddTime(Stage stage, Time start, Time end);
  bool traced() const { return trace_ != nullptr; }
  // For the trace: between BeginStep and EndStep, the training thread's stages belong to its next
  // step.
  void BeginStep();
  void EndStep(Time start, Time end);
  // `epoch` counts from 0, as phases do; progress counts from 1.
  void BeginEpoch(uint32_t epoch);
  // Call after BeginEpoch of a resumed epoch. Continues from `so_far`, the ReportAfter(done) of
  // this rank in the run that made the checkpoint. `steps_before`: steps of the epochs before this
  // one.
  void StartFrom(const TrainReport& so_far, uint64_t done, uint64_t steps_before);
  // Adds one step of `examples` examples; loss_sum and weight_sum are as in NetGradients.
  void AddStep(uint64_t examples, double loss_sum, double weight_sum);
  // Adds what the step of the next AddStep has logged. The next loss that is reported has the mean
  // of each name's values since the loss before it.
  void AddLogged(const std::vector<LoggedValue>& values);
  // Takes back the last AddStep of this life in the epoch, if there is one: the step never closes.
  void DropStep();
  // Counts a step that overflowed (fp16) and was not used. AddStep counts it too, with sums of 0.
  void AddSkippedStep();
  uint64_t skipped_steps();
  // Adds the use of hot rows in a step, by their cache or by Geo's store. All zeros only announce
  // that there is such a cache.
  void AddHotRows(const HotRowUse& use);
  // `done_after`: an epoch that is resumed after its step `done_after` does not read this data
  // again (ReportAfter).
  void AddBadLines(const BadLines& bad, uint64_t done_after = 0);
  // Malformed lines of this epoch, those before a resume too.
  uint64_t bad_lines();
  // Adds the summary of data read for the first epoch, perhaps before that epoch began. EpochReport
  // reports it.
  void AddSummary(const DataSummary& summary, uint64_t done_after = 0);
  // Counts of a data task of async or Geo, in addition to its examples.
  struct TaskData {
    BadLines bad;
    DataSummary summary;
    uint64_t dropped = 0;  // examples left out by drop_last
  };
  // Adds a task that was read for the epoch.
  void AddTask(uint64_t task_id, const TaskData& data);
  // The scheduler knows that this task is trained.
  void TaskAcknowledged(uint64_t task_id);
  // False once the first epoch is over: the data is summarized by then.
  bool summarizes();
  void SetDoing(std::string doing);
  // Progress reports how full `queue`, between readers and training, is; null: not training. The
  // queue must live until WatchQueue is called again.
  void WatchQueue(BatchQueue* queue);
  // Makes the calling thread reader `i` of its job: its spans have their own track.
  static void NameReader(uint32_t i);
  // Progress reports the device of `net`; null: none. The net must live until WatchNet is called
  // again.
  void WatchNet(const DenseNet* net);

  // Keeps this many of the newest losses until the next report; older ones are dropped.
  static constexpr int kMaxLosses = 4096;
  // Names of logged values in one loss; further ones are dropped.
  static constexpr size_t kMaxLogged = 16;
  // Progress for a report, with the losses gathered since the last call.
  WorkerProgress TakeProgress();
  // Takes back the losses of a report that was lost; the next report has them.
  void GiveBack(const WorkerProgress& lost);
  // The losses since the last progress that was taken, and those in it: its report may be on the
  // way.
  google::protobuf::RepeatedPtrField<StepLoss> UnreportedLosses();
  // Progress without the losses, which stay for the next report.
  WorkerProgress Progress();
  // Examples trained in all epochs of the job.
  uint64_t Examples();
  // Counts what this rank has trained in the current epoch, its earlier lives included.
  TrainTotals Totals();
  // Steps of the current epoch, those before a resume too.
  uint64_t EpochSteps();
  // The report of the current epoch so far.
  TrainReport EpochReport();
  // Returns the report for a checkpoint after the epoch's step `steps`, which is the last one
  // added. It leaves out malformed lines and summaries of data that was read ahead, because a
  // resumed epoch reads that data again.
  TrainReport ReportAfter(uint64_t steps);
  // Async and Geo: Totals() in the form that pushes carry; the task and the epoch are not set.
  TrainPosition Position();
  // Async and Geo: the report for a checkpoint. Malformed lines, summaries and dropped examples are
  // those of acknowledged tasks only. *tasks: how many tasks were acknowledged in this run of the
  // epoch.
  TrainReport ReportOfTasks(uint64_t* tasks);

 private:
  uint32_t ReaderTrack() const;
  void BoundLosses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TrainReport Report() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The report with the malformed lines and the summary of behind_.
  TrainReport ReportBehind() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the data read for the first `steps` steps from ahead_ to behind_.
  void LeaveBehind(uint64_t steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Returns true once, when the device has just run out of room for batches ahead.
  bool LostRoomAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Progress completed with the state of the queue and the device.
  WorkerProgress Complete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_id_;
  const uint32_t rank_;
  const uint32_t log_every_;
  LinePace line_pace_ ABSL_GUARDED_BY(mutex_);
  Time stepped_at_ ABSL_GUARDED_BY(mutex_);  // the last AddStep, or the begin of the epoch
  Time::duration longest_step_ ABSL_GUARDED_BY(mutex_) = Time::duration::zero();  // of the epoch
  const Log log_;
  TraceRecorder* const trace_;
  const uint32_t trainer_track_, reader_track_;

  Mutex mutex_;  // taken before the mutexes of the queue and the trace
  BatchQueue* queue_ ABSL_GUARDED_BY(mutex_) = nullptr;
  const DenseNet* net_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool told_no_room_ahead_ ABSL_GUARDED_BY(mutex_) = false;
  double busy_at_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double busy_share_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerProgress progress_ ABSL_GUARDED_BY(mutex_);
  TrainReport epoch_ ABSL_GUARDED_BY(mutex_);
  // The sums of epoch_ before the last step.
  std::optional<TrainTotals> before_step_ ABSL_GUARDED_BY(mutex_);
  bool in_first_epoch_ ABSL_GUARDED_BY(mutex_) = true;  // or before it
  DataSummary summary_ ABSL_GUARDED_BY(mutex_);         // of the first epoch
  // Malformed lines and summaries of the epoch: those read ahead of the training, and of the others
  // the sum. Bounded by what the readers read ahead.
  struct ReadAhead {
    uint64_t done_after = 0;
    BadLines bad;
    DataSummary summary;
  };
  std::vector<ReadAhead> ahead_ ABSL_GUARDED_BY(mutex_);
  TrainReport behind_ ABSL_GUARDED_BY(mutex_);
  // Async and Geo: tasks of the epoch that are not acknowledged, as few as the rank has leased.
  std::map<uint64_t, TaskData> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t tasks_acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;  // in this run of the epoch
  uint64_t epoch_steps_ ABSL_GUARDED_BY(mutex_) = 0;  // of the epoch, those before a resume too
  uint64_t examples_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t skipped_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t examples_at_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double loss_since_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double weight_since_log_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Logged {
    std::string name;
    double sum = 0;
    uint64_t n = 0;
  };
  std::vector<Logged> logged_since_log_ ABSL_GUARDED_BY(mutex_);
  google::protobuf::RepeatedPtrField<StepLoss> in_report_ ABSL_GUARDED_BY(mutex_);  // the last one
  Time logged_at_ ABSL_GUARDED_BY(mutex_);
  uint64_t traced_step_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: between steps
};

// Adds the time from its construction to its destruction to a stage.
class StageTimer {
 public:
  StageTimer(WorkerStats* stats, Stage stage)
      : stats_(stats), stage_(stage), start_(std::chrono::steady_clock::now()) {}
  ~StageTimer() { stats_->AddTime(stage_, start_, std::chrono::steady_clock::now()); }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  WorkerStats* const stats_;
  const Stage stage_;
  const WorkerStats::Time start_;
};

// Adds the time from its construction to its destruction to the trace as one step; the stages
// timed meanwhile belong to it.
class StepTimer {
 public:
  explicit StepTimer(WorkerStats* stats) : stats_(stats->traced() ? stats : nullptr) {
    if (stats_ == nullptr) return;
    start_ = std::chrono::steady_clock::now();
    stats_->BeginStep();
  }
  ~StepTimer() {
    if (stats_ != nullptr) stats_->EndStep(start_, std::chrono::steady_clock::now());
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

 private:
  WorkerStats* const stats_;
  WorkerStats::Time start_;
};

}  // namespace sluice

// What a worker measures about itself: where its time goes, and how far it is.
//
// Thread safety: safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/progress/trace_recorder.h"
#include "model/data/data_source.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class BatchQueue;
class DenseNet;

// Lines of a worker in the trace.
inline constexpr char kTrainerTrack[] = "training";
inline constexpr char kReaderTrack[] = "reading";

enum class Stage { kRead, kDedup, kPullWait, kCompute, kPushWait };

class WorkerStats {
 public:
  using Log = std::function<void(const std::string&)>;
  using Time = std::chrono::steady_clock::time_point;
  // Every `log_every` steps a line goes to `log`, and another one when the device has no room for
  // batches ahead. Stages and steps also become spans of `trace`, which outlives this; null: no
  // trace.
  WorkerStats(std::string job_id, uint32_t rank, uint32_t log_every, Log log,
              TraceRecorder* trace = nullptr);

  void AddTime(Stage stage, Time start, Time end);
  // Of the trace: the training thread is at its next step, until EndStep.
  bool traced() const { return trace_ != nullptr; }
  void BeginStep();
  void EndStep(Time start, Time end);
  // `epoch` counts from 0, as phases do; progress counts from 1.
  void BeginEpoch(uint32_t epoch);
  // One step of `examples` examples; loss_sum and weight_sum as in NetGradients.
  void AddStep(uint64_t examples, double loss_sum, double weight_sum);
  // A step that overflowed (fp16) and was not used; it was also counted by AddStep, with sums of 0.
  void AddSkippedStep();
  uint64_t skipped_steps();
  // What the cache of hot rows, or Geo's store, did for a step; or (all 0) that there is one.
  void AddHotRows(const HotRowUse& use);
  void AddBadLines(const BadLines& bad);
  // What data held that was read for the first epoch, maybe before it began; EpochReport tells it.
  void AddSummary(const DataSummary& summary);
  // False when the first epoch is over: what data holds is known.
  bool summarizes();
  void SetDoing(std::string doing);
  // The queue between reader and training, whose fill progress tells; null: not training. It
  // outlives the watch.
  void WatchQueue(BatchQueue* queue);
  // The calling thread is reader `i` of its job from now on: its spans have a track of their own.
  static void NameReader(uint32_t i);
  // The network whose device progress tells; null: none. It outlives the watch.
  void WatchNet(const DenseNet* net);

  // Of the losses that wait for a report, the newest are kept.
  static constexpr int kMaxLosses = 4096;
  // Progress for a report; hands over the losses gathered since the last call.
  WorkerProgress TakeProgress();
  // The report was lost: its losses go with the next one.
  void GiveBack(const WorkerProgress& lost);
  // The same without the losses, which stay.
  WorkerProgress Progress();
  // Trained in all epochs of the job.
  uint64_t Examples();
  // Of the epoch so far.
  TrainReport EpochReport();

 private:
  uint32_t ReaderTrack() const;
  void BoundLosses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // True once: since now, batches no longer go up ahead.
  bool LostRoomAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What progress tells of the queue and the device.
  WorkerProgress Complete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_id_;
  const uint32_t rank_;
  const uint32_t log_every_;
  const Log log_;
  TraceRecorder* const trace_;
  const uint32_t trainer_track_, reader_track_;

  Mutex mutex_;  // taken before a queue's and the trace's
  BatchQueue* queue_ ABSL_GUARDED_BY(mutex_) = nullptr;
  const DenseNet* net_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool told_no_room_ahead_ ABSL_GUARDED_BY(mutex_) = false;
  double busy_at_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double busy_share_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerProgress progress_ ABSL_GUARDED_BY(mutex_);
  TrainReport epoch_ ABSL_GUARDED_BY(mutex_);
  uint32_t epochs_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  DataSummary summary_ ABSL_GUARDED_BY(mutex_);  // of the first epoch
  uint64_t examples_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t skipped_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t examples_at_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double loss_since_log_ ABSL_GUARDED_BY(mutex_) = 0;
  double weight_since_log_ ABSL_GUARDED_BY(mutex_) = 0;
  Time logged_at_ ABSL_GUARDED_BY(mutex_);
  uint64_t traced_step_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: between steps
};

// Adds its lifetime to a stage.
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

// Adds its lifetime to the trace as one step, to which the stages within belong.
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

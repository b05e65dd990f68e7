#include "worker/context/worker_stats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/daemon/hot_row_use.h"
#include "model/features/data_summary.h"
#include "model/net/dense_net.h"
#include "worker/batches/batch_queue.h"

namespace sluice {
namespace {

TraceBatch::Name StageSpanName(Stage stage) {
  switch (stage) {
    case Stage::kRead:
      return TraceBatch::READ;
    case Stage::kDedup:
      return TraceBatch::DEDUP;
    case Stage::kPullWait:
      return TraceBatch::PULL_WAIT;
    case Stage::kCompute:
      return TraceBatch::COMPUTE;
    case Stage::kPushWait:
      return TraceBatch::PUSH_WAIT;
  }
  return TraceBatch::NAME_UNSPECIFIED;
}

constexpr std::chrono::steady_clock::duration kStalled = std::chrono::seconds(5);

// A reader thread numbers itself, so that the timers deep inside a source need no handle of it.
thread_local uint32_t reader_of_thread = 0;

uint32_t TrackOf(TraceRecorder* trace, const char* name) {
  return trace == nullptr ? 0 : trace->Track(name);
}

void AddTo(const BadLines& bad, TrainReport* report) {
  BadLines all;
  all.count = report->bad_lines();
  all.first.assign(report->first_bad_lines().begin(), report->first_bad_lines().end());
  all.Merge(bad);
  report->set_bad_lines(all.count);
  *report->mutable_first_bad_lines() = {all.first.begin(), all.first.end()};
}

}  // namespace

WorkerStats::WorkerStats(std::string job_id, uint32_t rank, uint32_t log_every, Log log,
                         TraceRecorder* trace)
    : job_id_(std::move(job_id)),
      rank_(rank),
      log_every_(log_every),
      log_(std::move(log)),
      trace_(trace),
      trainer_track_(TrackOf(trace, kTrainerTrack)),
      reader_track_(TrackOf(trace, kReaderTrack)) {
  MutexLock lock(&mutex_);
  progress_.set_job_id(job_id_);
  progress_.set_rank(rank_);
  logged_at_ = stepped_at_ = std::chrono::steady_clock::now();
}

void WorkerStats::NameReader(uint32_t i) { reader_of_thread = i; }

uint32_t WorkerStats::ReaderTrack() const {
  return reader_of_thread == 0
             ? reader_track_
             : trace_->Track(absl::StrCat(kReaderTrack, " ", reader_of_thread + 1));
}

void WorkerStats::AddTime(Stage stage, Time start, Time end) {
  const double seconds = std::chrono::duration<double>(end - start).count();
  MutexLock lock(&mutex_);
  if (trace_ != nullptr) {
    const bool reads = stage == Stage::kRead || stage == Stage::kDedup;
    TraceSpan span{StageSpanName(stage), start, end, reads ? ReaderTrack() : trainer_track_};
    // Readers work for batches of later steps, so their spans belong to no step.
    if (!reads) span.step = traced_step_;
    trace_->Add(span);
  }
  StageSeconds* s = progress_.mutable_stages();
  switch (stage) {
    case Stage::kRead:
      s->set_read(s->read() + seconds);
      break;
    case Stage::kDedup:
      s->set_dedup(s->dedup() + seconds);
      break;
    case Stage::kPullWait:
      s->set_pull_wait(s->pull_wait() + seconds);
      break;
    case Stage::kCompute:
      s->set_compute(s->compute() + seconds);
      break;
    case Stage::kPushWait:
      s->set_push_wait(s->push_wait() + seconds);
      break;
  }
}

void WorkerStats::BeginStep() {
  MutexLock lock(&mutex_);
  traced_step_ = progress_.step() + 1;
}

void WorkerStats::EndStep(Time start, Time end) {
  MutexLock lock(&mutex_);
  TraceSpan span{TraceBatch::STEP, start, end, trainer_track_, traced_step_};
  trace_->Add(span);
  traced_step_ = 0;
}

void WorkerStats::BeginEpoch(uint32_t epoch) {
  MutexLock lock(&mutex_);
  in_first_epoch_ = epoch == 0;
  progress_.set_epoch(epoch + 1);
  progress_.set_examples(0);
  epoch_.Clear();
  before_step_.reset();
  behind_.Clear();
  ahead_.clear();
  tasks_.clear();
  tasks_acknowledged_ = 0;
  if (in_first_epoch_) *behind_.mutable_summary() = summary_;
  epoch_steps_ = 0;
  examples_at_log_ = 0;
  loss_since_log_ = weight_since_log_ = 0;
  logged_since_log_.clear();
  logged_at_ = stepped_at_ = std::chrono::steady_clock::now();
  longest_step_ = Time::duration::zero();
  // The share of the first line must not count what the device did before the epoch.
  if (net_ != nullptr) busy_at_log_ = net_->device_stats().busy_seconds;
}

void WorkerStats::StartFrom(const TrainReport& so_far, uint64_t done, uint64_t steps_before) {
  MutexLock lock(&mutex_);
  epoch_ = so_far;
  // Report fills these two from summary_ and progress_, which last for the whole job.
  epoch_.clear_summary();
  epoch_.clear_stages();
  if (in_first_epoch_) summary_ = so_far.summary();
  behind_.set_bad_lines(so_far.bad_lines());
  *behind_.mutable_first_bad_lines() = so_far.first_bad_lines();
  behind_.set_dropped(so_far.dropped());
  if (in_first_epoch_) *behind_.mutable_summary() = so_far.summary();
  epoch_steps_ = done;
  progress_.set_step(steps_before + done);
  progress_.set_examples(so_far.examples());
  progress_.set_bad_lines(so_far.bad_lines());
  // The next line gives the speed of this life alone.
  examples_at_log_ = so_far.examples();
  StageSeconds* stages = progress_.mutable_stages();
  stages->set_read(stages->read() + so_far.stages().read());
  stages->set_dedup(stages->dedup() + so_far.stages().dedup());
  stages->set_pull_wait(stages->pull_wait() + so_far.stages().pull_wait());
  stages->set_compute(stages->compute() + so_far.stages().compute());
  stages->set_push_wait(stages->push_wait() + so_far.stages().push_wait());
}

bool WorkerStats::LostRoomAhead() {
  // Said once: the network does not take the second block again.
  if (told_no_room_ahead_ || net_ == nullptr) return false;
  told_no_room_ahead_ = net_->device_stats().no_room_ahead;
  return told_no_room_ahead_;
}

void WorkerStats::AddStep(uint64_t examples, double loss_sum, double weight_sum) {
  // Nothing is logged under the lock: the log may write a file.
  bool lost_room;
  {
    MutexLock lock(&mutex_);
    lost_room = LostRoomAhead();
  }
  if (lost_room && log_) {
    log_(absl::StrCat("job ", job_id_, " rank ", rank_,
                      ": device memory is short, so the next batch is no longer copied during a "
                      "step; lower train.batch_size (or the number of rows kept on the device), or "
                      "raise train.device_memory_fraction"));
  }
  std::string line;
  {
    MutexLock lock(&mutex_);
    const auto now = std::chrono::steady_clock::now();
    longest_step_ = std::max(longest_step_, now - stepped_at_);
    stepped_at_ = now;
    progress_.set_step(progress_.step() + 1);
    progress_.set_examples(progress_.examples() + examples);
    examples_ += examples;
    ++epoch_steps_;
    if (!before_step_) before_step_.emplace();
    before_step_->set_steps(epoch_.steps());
    before_step_->set_examples(epoch_.examples());
    before_step_->set_loss_sum(epoch_.loss_sum());
    before_step_->set_weight_sum(epoch_.weight_sum());
    epoch_.set_steps(epoch_.steps() + 1);
    epoch_.set_examples(epoch_.examples() + examples);
    epoch_.set_loss_sum(epoch_.loss_sum() + loss_sum);
    epoch_.set_weight_sum(epoch_.weight_sum() + weight_sum);
    loss_since_log_ += loss_sum;
    weight_since_log_ += weight_sum;
    if (progress_.step() % log_every_ != 0) return;
    const double seconds = std::chrono::duration<double>(now - logged_at_).count();
    // Without a weight, such as after steps that were all skipped, the last loss stays.
    if (weight_since_log_ > 0) progress_.set_loss(loss_since_log_ / weight_since_log_);
    if (seconds > 0) {
      progress_.set_examples_per_second((progress_.examples() - examples_at_log_) / seconds);
      const double busy = net_ == nullptr ? 0 : net_->device_stats().busy_seconds;
      busy_share_ = (busy - busy_at_log_) / seconds;
      busy_at_log_ = busy;
    }
    StepLoss* loss = progress_.add_losses();
    loss->set_step(progress_.step());
    loss->set_loss(progress_.loss());
    loss->set_epoch(progress_.epoch());
    loss->set_examples_per_second(progress_.examples_per_second());
    for (const Logged& one : logged_since_log_) {
      NamedValue* const user = loss->add_user();
      user->set_name(one.name);
      user->set_value(one.sum / static_cast<double>(one.n));
    }
    logged_since_log_.clear();
    // While no report gets through, the newest ones are kept.
    BoundLosses();
    examples_at_log_ = progress_.examples();
    loss_since_log_ = weight_since_log_ = 0;
    logged_at_ = now;
    if (!line_pace_.Take(now)) return;
    line = absl::StrFormat("job %s rank %d epoch %d step %d loss %.5f examples/s %.0f", job_id_,
                           rank_, progress_.epoch(), progress_.step(), progress_.loss(),
                           progress_.examples_per_second());
  }
  if (log_) log_(line);
}

void WorkerStats::AddLogged(const std::vector<LoggedValue>& values) {
  MutexLock lock(&mutex_);
  for (const LoggedValue& value : values) {
    auto known = std::find_if(logged_since_log_.begin(), logged_since_log_.end(),
                              [&](const Logged& one) { return one.name == value.name; });
    if (known == logged_since_log_.end()) {
      if (logged_since_log_.size() == kMaxLogged) continue;
      known = logged_since_log_.insert(known, Logged{value.name});
    }
    known->sum += value.value;
    ++known->n;
  }
}

void WorkerStats::DropStep() {
  MutexLock lock(&mutex_);
  if (!before_step_) return;
  const uint64_t examples = epoch_.examples() - before_step_->examples();
  progress_.set_step(progress_.step() - 1);
  progress_.set_examples(progress_.examples() - examples);
  examples_ -= examples;
  --epoch_steps_;
  // Not by subtraction, which would leave other bits than those of a run without the step.
  epoch_.set_steps(before_step_->steps());
  epoch_.set_examples(before_step_->examples());
  epoch_.set_loss_sum(before_step_->loss_sum());
  epoch_.set_weight_sum(before_step_->weight_sum());
  before_step_.reset();
}

void WorkerStats::AddSkippedStep() {
  MutexLock lock(&mutex_);
  ++skipped_steps_;
}

uint64_t WorkerStats::skipped_steps() {
  MutexLock lock(&mutex_);
  return skipped_steps_;
}

void WorkerStats::AddHotRows(const HotRowUse& use) {
  MutexLock lock(&mutex_);
  Add(use, progress_.mutable_hot_rows());
  Add(use, epoch_.mutable_hot_rows());
}

void WorkerStats::AddBadLines(const BadLines& bad, uint64_t done_after) {
  MutexLock lock(&mutex_);
  progress_.set_bad_lines(progress_.bad_lines() + bad.count);
  AddTo(bad, &epoch_);
  // The lines were read for a later step. A checkpoint before that step leaves them out, since a
  // job that resumes there reads and counts them again.
  ahead_.push_back({done_after, bad, DataSummary()});
  LeaveBehind(epoch_steps_);
}

uint64_t WorkerStats::bad_lines() {
  MutexLock lock(&mutex_);
  return epoch_.bad_lines();
}

void WorkerStats::AddSummary(const DataSummary& summary, uint64_t done_after) {
  MutexLock lock(&mutex_);
  sluice::AddSummary(summary, &summary_);
  ahead_.push_back({done_after, BadLines(), summary});
  LeaveBehind(epoch_steps_);
}

void WorkerStats::LeaveBehind(uint64_t steps) {
  // Stable, so that the first malformed lines stay the first.
  const auto behind = std::stable_partition(
      ahead_.begin(), ahead_.end(), [&](const ReadAhead& read) { return read.done_after > steps; });
  for (auto read = behind; read != ahead_.end(); ++read) {
    AddTo(read->bad, &behind_);
    if (in_first_epoch_) sluice::AddSummary(read->summary, behind_.mutable_summary());
  }
  ahead_.erase(behind, ahead_.end());
}

void WorkerStats::AddTask(uint64_t task_id, const TaskData& data) {
  MutexLock lock(&mutex_);
  progress_.set_bad_lines(progress_.bad_lines() + data.bad.count);
  AddTo(data.bad, &epoch_);
  if (in_first_epoch_) sluice::AddSummary(data.summary, &summary_);
  tasks_[task_id] = data;
}

void WorkerStats::TaskAcknowledged(uint64_t task_id) {
  MutexLock lock(&mutex_);
  const auto task = tasks_.find(task_id);
  // A task of an epoch that has ended; BeginEpoch has dropped it.
  if (task == tasks_.end()) return;
  // Only now: until the scheduler has acknowledged the task, a job that resumes from a checkpoint
  // leases it again and counts it again.
  AddTo(task->second.bad, &behind_);
  if (in_first_epoch_) sluice::AddSummary(task->second.summary, behind_.mutable_summary());
  behind_.set_dropped(behind_.dropped() + task->second.dropped);
  ++tasks_acknowledged_;
  tasks_.erase(task);
}

bool WorkerStats::summarizes() {
  MutexLock lock(&mutex_);
  return in_first_epoch_;
}

void WorkerStats::SetDoing(std::string doing) {
  MutexLock lock(&mutex_);
  progress_.set_doing(std::move(doing));
}

void WorkerStats::WatchQueue(BatchQueue* queue) {
  MutexLock lock(&mutex_);
  queue_ = queue;
}

void WorkerStats::WatchNet(const DenseNet* net) {
  MutexLock lock(&mutex_);
  net_ = net;
}

WorkerProgress WorkerStats::Complete() {
  WorkerProgress progress = progress_;
  // A worker that makes no steps has no speed, whatever that of its last ones was.
  if (std::chrono::steady_clock::now() - stepped_at_ > std::max(kStalled, 2 * longest_step_))
    progress.clear_examples_per_second();
  if (queue_ != nullptr) {
    progress.set_batches_ready(queue_->size());
    progress.set_batches_capacity(queue_->capacity());
  }
  const DeviceStats device = net_ == nullptr ? DeviceStats() : net_->device_stats();
  if (device.bytes_limit == 0) return progress;  // the CPU
  DeviceUse* use = progress.mutable_device();
  use->set_busy_seconds(device.busy_seconds);
  use->set_busy_share(busy_share_);
  use->set_bytes_in_use(device.bytes_in_use);
  use->set_bytes_limit(device.bytes_limit);
  use->set_skipped_steps(device.skipped_steps);
  use->set_loss_scale(device.loss_scale);
  use->set_steps_ahead(device.steps_ahead);
  use->set_no_room_ahead(device.no_room_ahead);
  return progress;
}

WorkerProgress WorkerStats::TakeProgress() {
  MutexLock lock(&mutex_);
  WorkerProgress progress = Complete();
  // The caller owns these losses now, and GiveBack returns them if the report is lost.
  in_report_ = progress_.losses();
  progress_.clear_losses();
  return progress;
}

google::protobuf::RepeatedPtrField<StepLoss> WorkerStats::UnreportedLosses() {
  MutexLock lock(&mutex_);
  auto losses = in_report_;
  losses.MergeFrom(progress_.losses());
  const int more = losses.size() - kMaxLosses;
  if (more > 0) losses.DeleteSubrange(0, more);
  return losses;
}

void WorkerStats::GiveBack(const WorkerProgress& lost) {
  MutexLock lock(&mutex_);
  in_report_.Clear();
  // The lost report's losses are older than those gathered since, so they go first.
  auto losses = lost.losses();
  losses.MergeFrom(progress_.losses());
  losses.Swap(progress_.mutable_losses());
  BoundLosses();
}

void WorkerStats::BoundLosses() {
  const int more = progress_.losses_size() - kMaxLosses;
  if (more > 0) progress_.mutable_losses()->DeleteSubrange(0, more);
}

WorkerProgress WorkerStats::Progress() {
  MutexLock lock(&mutex_);
  WorkerProgress progress = Complete();
  progress.clear_losses();
  return progress;
}

uint64_t WorkerStats::Examples() {
  MutexLock lock(&mutex_);
  return examples_;
}

TrainTotals WorkerStats::Totals() {
  MutexLock lock(&mutex_);
  TrainTotals totals;
  totals.set_examples(epoch_.examples());
  totals.set_loss_sum(epoch_.loss_sum());
  totals.set_weight_sum(epoch_.weight_sum());
  totals.set_steps(epoch_.steps());
  return totals;
}

uint64_t WorkerStats::EpochSteps() {
  MutexLock lock(&mutex_);
  return epoch_steps_;
}

TrainReport WorkerStats::EpochReport() {
  MutexLock lock(&mutex_);
  return Report();
}

TrainReport WorkerStats::Report() const {
  TrainReport report = epoch_;
  *report.mutable_stages() = progress_.stages();
  if (in_first_epoch_) *report.mutable_summary() = summary_;
  return report;
}

TrainReport WorkerStats::ReportAfter(uint64_t steps) {
  MutexLock lock(&mutex_);
  LeaveBehind(steps);
  return ReportBehind();
}

TrainPosition WorkerStats::Position() {
  // One call, so that all figures are of the same step.
  const TrainTotals totals = Totals();
  TrainPosition position;
  position.examples = totals.examples();
  position.steps = totals.steps();
  position.loss_sum = totals.loss_sum();
  position.weight_sum = totals.weight_sum();
  return position;
}

TrainReport WorkerStats::ReportOfTasks(uint64_t* tasks) {
  MutexLock lock(&mutex_);
  *tasks = tasks_acknowledged_;
  TrainReport report = ReportBehind();
  report.set_dropped(behind_.dropped());
  return report;
}

TrainReport WorkerStats::ReportBehind() const {
  // Sums of steps are exact after each step. Malformed lines and the summary come from reading,
  // which runs ahead of the steps, so they are those of what is behind.
  TrainReport report = Report();
  report.set_bad_lines(behind_.bad_lines());
  *report.mutable_first_bad_lines() = behind_.first_bad_lines();
  if (in_first_epoch_) *report.mutable_summary() = behind_.summary();
  return report;
}

}  // namespace sluice

#include "common/daemon/trace_recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

TraceRecorder::TraceRecorder(std::string job_id, Clock* clock, size_t capacity)
    : job_id_(std::move(job_id)),
      capacity_(capacity),
      wall_begin_(clock->WallNow()),
      steady_begin_(std::chrono::steady_clock::now()) {}

int64_t TraceRecorder::ToUnixMicros(TraceSpan::Time time) const {
  // From one reading of both clocks: spans keep their lengths when the time of day is set.
  return absl::ToUnixMicros(wall_begin_ + absl::FromChrono(time - steady_begin_));
}

uint32_t TraceRecorder::Track(const std::string& name) {
  MutexLock lock(&mutex_);
  return TrackLocked(name);
}

uint32_t TraceRecorder::TrackLocked(const std::string& name) {
  for (uint32_t track = 0; track < tracks_.size(); ++track) {
    if (tracks_[track] == name) return track;
  }
  tracks_.push_back(name);
  return static_cast<uint32_t>(tracks_.size()) - 1;
}

uint32_t TraceRecorder::ThreadTrack() {
  const auto known = threads_.find(std::this_thread::get_id());
  if (known != threads_.end()) return known->second;
  const uint32_t track = TrackLocked(absl::StrCat("thread ", threads_.size()));
  threads_[std::this_thread::get_id()] = track;
  return track;
}

void TraceRecorder::Add(const TraceSpan& span) {
  MutexLock lock(&mutex_);
  // Bounded, because reports may fail for as long as the scheduler is away. Spans that do not fit
  // are only counted.
  if (spans_.size() + lost_spans_ >= capacity_) {
    ++dropped_;
    return;
  }
  const uint32_t track = span.track == TraceSpan::kThisThread ? ThreadTrack() : span.track;
  // Rounds both ends down, so that a span that lies within another still does.
  spans_.push_back({span.name, track, ToUnixMicros(span.start), ToUnixMicros(span.end), span.step,
                    span.bytes, span.rank});
}

TraceBatch TraceRecorder::TakeBatch() {
  TraceBatch batch;
  batch.set_job_id(job_id_);
  batch.set_number(++batches_);
  batch.set_dropped(std::exchange(dropped_, 0));
  for (const std::string& track : tracks_) batch.add_tracks(track);
  int64_t start = 0;
  uint64_t step = 0;
  for (const Waiting& span : spans_) {
    batch.add_name(span.name);
    // Differences to the span before are small numbers, which take one or two bytes.
    batch.add_start_us(span.start_us - start);
    batch.add_duration_us(span.end_us - span.start_us);
    batch.add_track(span.track);
    batch.add_step(static_cast<int64_t>(span.step - step));
    batch.add_rank(span.rank);
    batch.add_bytes(span.bytes);
    start = span.start_us;
    step = span.step;
  }
  spans_.clear();
  return batch;
}

void TraceRecorder::Take(google::protobuf::RepeatedPtrField<TraceBatch>* batches) {
  MutexLock lock(&mutex_);
  const int first = batches->size();
  // The older ones first.
  for (TraceBatch& batch : lost_) *batches->Add() = std::move(batch);
  lost_.clear();
  lost_spans_ = 0;
  if (!spans_.empty() || dropped_ > 0) *batches->Add() = TakeBatch();
  const int64_t now = ToUnixMicros(std::chrono::steady_clock::now());
  for (int i = first; i < batches->size(); ++i) batches->Mutable(i)->set_sent_us(now);
}

void TraceRecorder::GiveBack(TraceBatch lost) {
  MutexLock lock(&mutex_);
  const size_t spans = lost.name_size();
  if (spans_.size() + lost_spans_ + spans > capacity_) {
    TraceBatch none;
    none.set_job_id(job_id_);
    // The number stays, so that the scheduler does not wait for a batch that never comes.
    none.set_number(lost.number());
    none.set_dropped(lost.dropped() + spans);
    lost = std::move(none);
  }
  lost_spans_ += lost.name_size();
  lost_.push_back(std::move(lost));
}

std::unique_ptr<TraceRecorder> MakeTraceRecorder(const JobSpec& job, Clock* clock) {
  if (job.config().trace_file().empty()) return nullptr;
  return std::make_unique<TraceRecorder>(job.job_id(), clock);
}

}  // namespace sluice

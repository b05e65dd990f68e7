// Records spans of time for the trace of one job until a report takes them to the scheduler.
//
// Thread safety: safe from any thread.
//
// Memory: at most `capacity` spans wait, including the spans of lost reports; further spans are
// counted and dropped.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct TraceSpan {
  using Time = std::chrono::steady_clock::time_point;
  static constexpr uint32_t kThisThread = ~0u;

  TraceBatch::Name name = TraceBatch::NAME_UNSPECIFIED;
  Time start, end;
  uint32_t track = kThisThread;  // from Track(); default: one track per thread that adds spans
  uint64_t step = 0;             // 0: belongs to no step
  uint32_t rank = 0;
  uint64_t bytes = 0;
};

class TraceRecorder {
 public:
  static constexpr size_t kCapacity = 65536;
  // `clock` is used during the call only.
  TraceRecorder(std::string job_id, Clock* clock, size_t capacity = kCapacity);

  // Returns the track with this name, creating it if needed.
  uint32_t Track(const std::string& name);
  // REQUIRES: start <= end. Two spans of one track are disjoint, or one contains the other.
  void Add(const TraceSpan& span);

  // Hands over everything that waits: the batches of lost reports, then the spans since the last
  // call.
  void Take(google::protobuf::RepeatedPtrField<TraceBatch>* batches);
  // Call it when the report with this batch was lost. The next Take returns the batch again, under
  // the same number.
  void GiveBack(TraceBatch lost);

 private:
  struct Waiting {
    TraceBatch::Name name;
    uint32_t track;
    int64_t start_us, end_us;  // since the Unix epoch
    uint64_t step, bytes;
    uint32_t rank;
  };
  int64_t ToUnixMicros(TraceSpan::Time time) const;
  uint32_t TrackLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t ThreadTrack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TraceBatch TakeBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_id_;
  const size_t capacity_;
  // The same instant on both clocks, so that spans stay monotonic when the time of day is set.
  const absl::Time wall_begin_;
  const TraceSpan::Time steady_begin_;

  Mutex mutex_;
  std::vector<std::string> tracks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::thread::id, uint32_t> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiting> spans_ ABSL_GUARDED_BY(mutex_);
  std::deque<TraceBatch> lost_ ABSL_GUARDED_BY(mutex_);
  size_t lost_spans_ ABSL_GUARDED_BY(mutex_) = 0;  // spans in lost_
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t batches_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Returns the recorder for a process of this job; null when the job asks for no trace.
std::unique_ptr<TraceRecorder> MakeTraceRecorder(const JobSpec& job, Clock* clock);

// Adds its lifetime as a span; does nothing when `recorder` is null.
class SpanTimer {
 public:
  SpanTimer(TraceRecorder* recorder, TraceBatch::Name name, uint32_t track = TraceSpan::kThisThread)
      : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    span_.name = name;
    span_.track = track;
    span_.start = std::chrono::steady_clock::now();
  }
  ~SpanTimer() {
    if (recorder_ == nullptr) return;
    span_.end = std::chrono::steady_clock::now();
    recorder_->Add(span_);
  }
  SpanTimer(const SpanTimer&) = delete;
  SpanTimer& operator=(const SpanTimer&) = delete;

  void set_step(uint64_t step) { span_.step = step; }
  void set_rank(uint32_t rank) { span_.rank = rank; }
  void set_bytes(uint64_t bytes) { span_.bytes = bytes; }

 private:
  TraceRecorder* const recorder_;
  TraceSpan span_;
};

}  // namespace sluice

#include "common/daemon/trace_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "common/base/clock.h"

namespace sluice {
namespace {

using Batches = google::protobuf::RepeatedPtrField<TraceBatch>;
using std::chrono::microseconds;

TraceSpan Span(TraceSpan::Time start, int64_t us, uint64_t step, uint32_t track = 0) {
  return {TraceBatch::COMPUTE, start, start + microseconds(us), track, step};
}

Batches TakeFrom(TraceRecorder* recorder) {
  Batches batches;
  recorder->Take(&batches);
  return batches;
}

TEST(TraceRecorderTest, BatchHoldsTheSpansSinceTheLastOne) {
  TraceRecorder recorder("job-1", Clock::Real());
  const uint32_t reading = recorder.Track("reading"), training = recorder.Track("training");
  EXPECT_EQ(recorder.Track("reading"), reading);
  const TraceSpan::Time begin = std::chrono::steady_clock::now();
  const int64_t before = absl::ToUnixMicros(Clock::Real()->WallNow());
  recorder.Add(Span(begin + microseconds(2000), 700, 8, training));
  TraceSpan second = Span(begin, 300, 7, reading);
  second.rank = 3;
  second.bytes = 4096;
  recorder.Add(second);
  const Batches batches = TakeFrom(&recorder);
  // A busy machine may pause this thread anywhere in between.
  const int64_t after = absl::ToUnixMicros(Clock::Real()->WallNow());
  ASSERT_EQ(batches.size(), 1);
  const TraceBatch& batch = batches[0];
  EXPECT_EQ(batch.job_id(), "job-1");
  EXPECT_EQ(batch.number(), 1u);
  EXPECT_EQ(batch.dropped(), 0u);
  ASSERT_EQ(batch.tracks_size(), 2);
  EXPECT_EQ(batch.tracks(training), "training");
  ASSERT_EQ(batch.name_size(), 2);
  EXPECT_NEAR(batch.start_us(0), before + 2000, after - before + 1000);
  EXPECT_NEAR(batch.start_us(1), -2000, 1);  // both are rounded
  EXPECT_NEAR(batch.duration_us(0), 700, 1);
  EXPECT_EQ(batch.track(0), training);
  EXPECT_EQ(batch.track(1), reading);
  EXPECT_EQ(batch.step(0), 8);
  EXPECT_EQ(batch.step(1), -1);
  EXPECT_EQ(batch.rank(1), 3u);
  EXPECT_EQ(batch.bytes(1), 4096u);
  EXPECT_GE(batch.sent_us(), before);
  EXPECT_LE(batch.sent_us(), after);
  EXPECT_EQ(TakeFrom(&recorder).size(), 0);
}

TEST(TraceRecorderTest, DroppedSpansAreCounted) {
  TraceRecorder recorder("job", Clock::Real(), 3);
  for (int i = 0; i < 5; ++i) recorder.Add(Span(std::chrono::steady_clock::now(), 1, i));
  Batches batches = TakeFrom(&recorder);
  ASSERT_EQ(batches.size(), 1);
  EXPECT_EQ(batches[0].name_size(), 3);
  EXPECT_EQ(batches[0].dropped(), 2u);
  recorder.Add(Span(std::chrono::steady_clock::now(), 1, 5));
  recorder.GiveBack(batches[0]);  // the new batch leaves no room for it
  batches = TakeFrom(&recorder);
  ASSERT_EQ(batches.size(), 2);
  EXPECT_EQ(batches[0].number(), 1u);
  EXPECT_EQ(batches[0].name_size(), 0);
  EXPECT_EQ(batches[0].dropped(), 5u);
  EXPECT_EQ(batches[1].name_size(), 1);
  EXPECT_EQ(batches[1].dropped(), 0u);
}

TEST(TraceRecorderTest, LostBatchIsSentAgainUnderItsNumber) {
  TraceRecorder recorder("job", Clock::Real(), 4);
  recorder.Add(Span(std::chrono::steady_clock::now(), 1, 1));
  const Batches lost = TakeFrom(&recorder);
  recorder.Add(Span(std::chrono::steady_clock::now(), 1, 2));
  recorder.GiveBack(lost[0]);
  const Batches again = TakeFrom(&recorder);
  ASSERT_EQ(again.size(), 2);
  EXPECT_EQ(again[0].number(), 1u);
  EXPECT_EQ(again[0].step(0), 1);
  EXPECT_EQ(again[0].start_us(0), lost[0].start_us(0));
  EXPECT_EQ(again[1].number(), 2u);
  EXPECT_EQ(again[1].step(0), 2);
  // The lost spans counted as waiting; now they are gone.
  for (int i = 0; i < 4; ++i) recorder.Add(Span(std::chrono::steady_clock::now(), 1, i));
  EXPECT_EQ(TakeFrom(&recorder)[0].name_size(), 4);
}

TEST(TraceRecorderTest, ThreadsHaveTracksOfTheirOwn) {
  TraceRecorder recorder("job", Clock::Real());
  const auto add = [&recorder] {
    for (int i = 0; i < 1000; ++i) {
      SpanTimer span(&recorder, TraceBatch::PUSH);
      span.set_rank(1);
    }
  };
  std::thread one(add), two(add);
  one.join();
  two.join();
  const TraceBatch batch = TakeFrom(&recorder)[0];
  ASSERT_EQ(batch.name_size(), 2000);
  EXPECT_EQ(batch.tracks_size(), 2);
  EXPECT_EQ(std::count(batch.track().begin(), batch.track().end(), 0u), 1000);
}

TEST(TraceRecorderTest, JobWithoutATraceFileHasNone) {
  JobSpec job;
  EXPECT_EQ(MakeTraceRecorder(job, Clock::Real()), nullptr);
  { const SpanTimer nothing(nullptr, TraceBatch::PUSH); }
  job.mutable_config()->set_trace_file("t");
  EXPECT_NE(MakeTraceRecorder(job, Clock::Real()), nullptr);
}

}  // namespace
}  // namespace sluice

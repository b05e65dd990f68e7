// A write that the scheduler's core asks for: part of a job's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// A point of a curve in the event file.
struct Scalar {
  std::string tag;
  uint64_t step = 0;
  double value = 0;
};

// Where a job that resumes continues its curves: after `step` and after `epochs` whole ones. The
// checkpoint was made at `made`, by the job's scheduler.
struct CurvePosition {
  uint64_t step = 0;
  uint64_t epochs = 0;
  absl::Time made;
};

// A batch of trace spans as a member reported it.
struct TraceReport {
  uint64_t member_id = 0;
  RegisterRequest member;
  absl::Time received;
  TraceBatch batch;
};

// A job has one kStarted (none if it never starts), then kScalars, kTrace, kCheckpoint and kDiscard
// (of a checkpoint that was given up), and kModels (some models of earlier epochs are no longer
// needed), then one kEnded.
struct OutputAction {
  enum Kind { kStarted, kScalars, kTrace, kCheckpoint, kDiscard, kModels, kEnded };
  Kind kind = kStarted;
  std::string job_id;
  absl::Time time;   // on the core's clock; SchedulerLoop replaces it with the time of day
  JobConfig config;  // kStarted, kCheckpoint, kDiscard, kModels, kEnded
  // kStarted, kEnded: an earlier scheduler began the job, whose files in the folder continue.
  bool again = false;
  bool resumes = false;  // kStarted: the job continues from a checkpoint (--resume)
  // kStarted, kEnded: it may take its folder over from a job that has not ended (--resume, whether
  // or not there was a checkpoint, or --overwrite).
  bool takes_over = false;
  std::optional<CurvePosition> curve_from;  // kStarted of such a job
  std::vector<Scalar> scalars;
  TraceReport trace;    // kTrace
  JobResult result;     // kEnded
  std::string save_id;  // kEnded: Phase.save_id of the job, "" when it never started;
                        // kCheckpoint, kDiscard
  // kCheckpoint, whose `time` is the time of the cut, and kDiscard, whose manifest has only the
  // step. With manifest.export it is an export; of a kDiscard it names the instance and the cut.
  uint64_t number = 0;
  Manifest manifest;
  std::vector<std::string> save_ids;  // kModels: that stay; `number` is the newest epoch, from 1
  std::vector<std::string> damaged;   // kCheckpoint: CheckpointLedger::damaged
  // kStarted, kEnded, kModels, kCheckpoint: the job's instances so far, the present one last.
  // kCheckpoint: only of a job that has started from the beginning; checkpoints of others are
  // removed.
  std::vector<uint64_t> instances;
  std::string why;  // kDiscard: the reason; empty when it was given before
};

}  // namespace sluice

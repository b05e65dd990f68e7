// Judges the evaluations that end the epochs of a job: which one is the best so far, and whether
// training stops because they no longer improve (train.early_stop).
//
// All that a judgement needs of the earlier ones is in the JobResult, which checkpoints and records
// keep. So a job that resumes or goes back judges as one that never stopped.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// True when the evaluation has the metric by which the job judges. Without it nothing is judged: a
// value that cannot be known is neither better nor worse than another.
bool IsJudged(const JobConfig& config, const EvalMetrics& eval);

// Takes the evaluation of `epoch` (from 0), which ends at `step`, into result->best, early_stop and
// stopped_early. Returns true when it is the best so far. The first one that is judged is; of equal
// ones the earlier is better.
bool JudgeEpoch(const JobConfig& config, const EvalMetrics& eval, uint32_t epoch, uint64_t step,
                JobResult* result);

// True when the next evaluation ends training if it does not improve.
bool MayStopNext(const JobConfig& config, const JobResult& result);

// Drops what a job that resumes cannot use: a best epoch whose model was not saved, when the job
// saves the best one, and judgements by another metric than the job's.
void AdaptJudgements(const JobConfig& config, JobResult* result);

}  // namespace sluice

// Evaluates this rank's byte ranges of the evaluation files, or the batches that the program gives,
// on the pservers' values.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/eval/eval_accumulator.h"
#include "worker/batches/pool.h"
#include "worker/context/job_context.h"
#include "worker/data/batch_keys.h"

namespace sluice {

class Evaluator {
 public:
  explicit Evaluator(const JobContext& context) : context_(context) {}
  // Rank r of W takes the lines that start in the r-th of W equal parts of each file. The sums over
  // all ranks are the same for every W. The first run adds a summary of the data to *summary.
  absl::StatusOr<EvalSums> Run(DataSummary* summary);

 private:
  // Lists the pieces at the first call only. The files do not change during a job, and finding the
  // text size of a compressed file takes a whole pass over it.
  absl::Status ListPieces();
  absl::Status ScorePiece(const ExampleView& examples, EvalAccumulator* sums);
  // REQUIRES: prepared->batch is filled.
  absl::Status ScoreBatch(const std::shared_ptr<PreparedBatch>& prepared, EvalAccumulator* sums);
  // Looks whether the job was cancelled, or another rank needs something of this one.
  absl::Status BetweenBatches() const;
  absl::StatusOr<EvalSums> ScoreFiles(DataSummary* summary);
  // Scores the batches that the program gives.
  absl::StatusOr<EvalSums> ScoreOwn();
  absl::Status PullRows(const std::shared_ptr<PreparedBatch>& prepared);

  const JobContext& context_;
  std::vector<DataPiece> pieces_;  // this rank's; empty: not listed yet
  bool summarized_ = false;
  BatchKeys keys_;
  Pool<PreparedBatch> batches_;
  std::vector<float> logits_;  // of the batch being scored
  StepBuffers dense_;          // pulled once per evaluation
  StepBuffers values_;         // rows of the batch being scored
};

}  // namespace sluice

// This rank's share of an evaluation: its byte ranges of the evaluation files, on the server's
// values.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/eval/eval_accumulator.h"
#include "worker/job_context.h"
#include "worker/net_step.h"

namespace sluice {

class Evaluator {
 public:
  explicit Evaluator(const JobContext& context) : context_(context), step_(context) {}
  // Rank r of W takes the lines that start in its W-th of each file. Sums are the same for every W.
  absl::StatusOr<EvalSums> Run();

 private:
  absl::StatusOr<std::vector<DataPiece>> MyPieces();
  absl::Status ScorePiece(const ExampleView& examples, EvalAccumulator* sums);
  absl::Status PullRows(const std::shared_ptr<PreparedBatch>& prepared);

  const JobContext& context_;
  NetStep step_;
  KeyDeduplicator deduplicator_;
  Pool<PreparedBatch> batches_;
  StepBuffers dense_;   // pulled once an evaluation
  StepBuffers values_;  // rows of the batch that is scored
};

}  // namespace sluice

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
  // The first run adds what the text held to *summary.
  absl::StatusOr<EvalSums> Run(DataSummary* summary);

 private:
  // Once: the files stay as they are, and of compressed ones the size of the text takes a pass.
  absl::Status ListPieces();
  absl::Status ScorePiece(const ExampleView& examples, EvalAccumulator* sums);
  absl::Status PullRows(const std::shared_ptr<PreparedBatch>& prepared);

  const JobContext& context_;
  std::vector<DataPiece> pieces_;  // of this rank; empty: not listed yet
  bool summarized_ = false;
  NetStep step_;
  KeyDeduplicator deduplicator_;
  Pool<PreparedBatch> batches_;
  StepBuffers dense_;   // pulled once an evaluation
  StepBuffers values_;  // rows of the batch that is scored
};

}  // namespace sluice

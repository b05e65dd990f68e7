// One forward and backward with its buffers: what all three modes do between pull and push.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/job_context.h"
#include "worker/pool.h"
#include "worker/prepared_batch.h"

namespace sluice {

class NetStep {
 public:
  explicit NetStep(const JobContext& context) : context_(context) {}

  // Buffers for the unique keys of `prepared` and all dense tables; return to their pool when
  // released.
  std::shared_ptr<StepBuffers> TakeBuffers(const PreparedBatch& prepared);

  // Gradients (fresh buffers) of the batch at `rows` [U][dim] and `dense` (by
  // Model::dense_tables()), clipped to optimizers.clip_global_norm. Counts the step in the stats.
  // *weight is n_w. Null, with *weight 0: the step overflowed and is skipped
  // (NetGradients::skipped); MakePush makes an empty push of it.
  absl::StatusOr<std::shared_ptr<StepBuffers>> Run(const PreparedBatch& prepared, uint32_t epoch,
                                                   const float* rows,
                                                   const std::vector<const float*>& dense,
                                                   double* weight);

  // The pull of all values a batch needs into `values`.
  PullRequest MakePull(const std::shared_ptr<const PreparedBatch>& prepared,
                       StepBuffers* values) const;
  // The push of its gradients; null: of a skipped step, which takes part with n_w = 0, no key and
  // no value.
  PushRequest MakePush(const std::shared_ptr<const PreparedBatch>& prepared,
                       const std::shared_ptr<StepBuffers>& gradients, double weight) const;
  static std::vector<const float*> DenseOf(const StepBuffers& buffers);

 private:
  PushRequest MakeEmptyPush(const PreparedBatch& prepared) const;
  void ClipGlobalNorm(const PreparedBatch& prepared, StepBuffers* gradients) const;

  const JobContext& context_;
  Pool<StepBuffers> pool_;
};

}  // namespace sluice

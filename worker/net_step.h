// One forward and backward with its buffers: what all three modes do between pull and push.
//
// Thread safety: one thread.
#pragma once

#include <functional>
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

  // Told that the gradient of dense table i (by Model::dense_tables()) is final, on a thread of the
  // net; the step goes on.
  using Ready =
      std::function<void(const std::shared_ptr<StepBuffers>& gradients, double weight, size_t i)>;

  // Tells the net which batch comes after the one that Run is called for next; null: not known.
  void Announce(const std::shared_ptr<const PreparedBatch>& next) const;

  // Gradients (fresh buffers) of the batch at the values in `input` (rows, or resident and slots;
  // dense; the rest is filled in), clipped to optimizers.clip_global_norm. Counts the step in the
  // stats. *weight is n_w. `ready` (may be empty) is not called when clipping needs the whole
  // gradient.
  // Null, with *weight 0: the step overflowed and is skipped (NetGradients::skipped); MakePush
  // makes an empty push of it.
  absl::StatusOr<std::shared_ptr<StepBuffers>> Run(const PreparedBatch& prepared, uint32_t epoch,
                                                   NetInput input, double* weight,
                                                   const Ready& ready = nullptr);

  // The pull of the rows of `keys` (of the sparse table, if there is one) and of all dense tables
  // into `values`.
  PullRequest MakePull(std::shared_ptr<const KeySet> keys, StepBuffers* values) const;
  // The push of its gradients, and of dense table i (by Model::dense_tables()) alone. MakePush of
  // null: of a skipped step, which takes part with n_w = 0, no key and no value.
  PushRequest MakePush(const std::shared_ptr<const PreparedBatch>& prepared,
                       const std::shared_ptr<StepBuffers>& gradients, double weight) const;
  PushRequest MakeDensePush(const std::shared_ptr<const PreparedBatch>& prepared,
                            const std::shared_ptr<StepBuffers>& gradients, double weight,
                            size_t i) const;
  static std::vector<const float*> DenseOf(const StepBuffers& buffers);
  // The values of a pull that `buffers` hold.
  static NetInput InputOf(const StepBuffers& buffers);

 private:
  PushRequest MakeEmptyPush(const PreparedBatch& prepared) const;
  void ClipGlobalNorm(const PreparedBatch& prepared, StepBuffers* gradients) const;

  const JobContext& context_;
  Pool<StepBuffers> pool_;
};

}  // namespace sluice

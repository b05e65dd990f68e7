// Forward and backward of one step with its buffers, as all three modes run it between pull and
// push. With gradient_merge_steps the network computes it in passes (NetOptions::pass_examples).
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/batches/pool.h"
#include "worker/batches/prepared_batch.h"
#include "worker/context/job_context.h"

namespace sluice {

class NetStep {
 public:
  explicit NetStep(const JobContext& context) : context_(context) {}

  // Returns buffers for the unique keys of `prepared` and all dense tables; those that a program
  // has frozen (IsFrozenTable) have an empty one. They return to their pool when released.
  std::shared_ptr<StepBuffers> TakeBuffers(const PreparedBatch& prepared);

  // Called on a thread of the net when the gradient of dense table i (by Model::dense_tables()) is
  // final, while the step continues.
  using Ready =
      std::function<void(const std::shared_ptr<StepBuffers>& gradients, double weight, size_t i)>;

  // Tells the net which batch will follow the next one that Run is called for; null: not known yet.
  void Announce(const std::shared_ptr<const PreparedBatch>& next) const;

  // Computes the gradients of the batch, in fresh buffers, clipped to optimizers.clip_global_norm.
  // `input` names the values: dense, and by sparse table those of the rows or where they are; Run
  // fills in the rest. Counts the step in the stats. *weight is n_w. `ready` may be empty, and is
  // not called when clipping needs the whole gradient. Null, with *weight 0, means that the step
  // overflowed and is skipped (NetGradients::skipped); MakePush then makes an empty push.
  // Null as well if program_left().
  absl::StatusOr<std::shared_ptr<StepBuffers>> Run(const PreparedBatch& prepared, uint32_t epoch,
                                                   NetInput input, double* weight,
                                                   const Ready& ready = nullptr);

  // The last Run has made no step, since the user's program has left its loop.
  bool program_left() const { return program_left_; }

  // Async: how far the rank is with the last Run.
  const TrainPosition& position() const { return position_; }

  // Makes the pull of the dense tables that pservers keep, and of all rows of `prepared`, into
  // `values`. PullRequest::sparse is by Model::sparse_tables(): with a cache of hot rows the caller
  // replaces keys there by those that it lacks.
  PullRequest MakePull(const std::shared_ptr<const PreparedBatch>& prepared,
                       StepBuffers* values) const;
  // MakePush makes the push of all gradients of a batch, and MakeDensePush the push of dense table
  // i (by Model::dense_tables()) alone. Null gradients mean a skipped step: its push has n_w = 0,
  // no key and no value. Both belong to the last Run.
  PushRequest MakePush(const std::shared_ptr<const PreparedBatch>& prepared,
                       const std::shared_ptr<StepBuffers>& gradients, double weight) const;
  PushRequest MakeDensePush(const std::shared_ptr<const PreparedBatch>& prepared,
                            const std::shared_ptr<StepBuffers>& gradients, double weight,
                            size_t i) const;
  // By table.
  static std::vector<const float*> RowsOf(const StepBuffers& buffers);
  static std::vector<const float*> DenseOf(const StepBuffers& buffers);
  // The values for a step as input. `buffers`: those of its pull.
  NetInput InputOf(const StepBuffers& buffers) const;
  // Sizes buffers->rows for the unique keys of `prepared`, and leaves the dense tables as they are.
  static void SizeRows(const JobContext& context, const PreparedBatch& prepared,
                       StepBuffers* buffers);

 private:
  PushRequest MakeEmptyPush(const PreparedBatch& prepared) const;
  void ClipGlobalNorm(const PreparedBatch& prepared, StepBuffers* gradients) const;

  // Async: how far the rank is with `prepared`, without the sums of its step.
  TrainPosition PositionBefore(const PreparedBatch& prepared, uint32_t epoch) const;

  const JobContext& context_;
  Pool<StepBuffers> pool_;
  bool program_left_ = false;
  // Async: the positions of the last Run's frame, for its parts that leave early and for the rest.
  TrainPosition early_, position_;
};

}  // namespace sluice

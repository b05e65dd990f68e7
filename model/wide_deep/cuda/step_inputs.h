// The blocks of input of a network: two, so that the batch of the next step goes up and its keys
// are sorted while the step before computes on the other block.
//
// Invariants: a step reads the current block, which nothing else touches before it has ended; the
// other one holds the batch that was brought up ahead, if any. A batch is known by its addresses,
// which stay its own because `staged_` holds it.
//
// Memory: the second block is taken with the first batch that is announced, and given back for good
// when the device has no room for both.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "model/net/dense_net.h"
#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_staging.h"

namespace sluice::cuda {

// What the blocks, 0 and 1, need of a device. On the device: CudaInputDevice; in tests the same
// calls run on the host. Copies up run in order, sorts run in order, each beside the steps.
class InputDevice {
 public:
  virtual ~InputDevice() = default;
  // Room for `up_bytes` of pinned memory and `bytes` on the device. Contents and addresses may
  // change. RESOURCE_EXHAUSTED names wanted and limit. REQUIRES: no work in flight uses the block.
  virtual absl::Status Reserve(size_t block, size_t up_bytes, size_t bytes) = 0;
  // Gives its memory back. REQUIRES: as above.
  virtual void Release(size_t block) = 0;
  virtual char* pinned(size_t block) const = 0;
  virtual char* data(size_t block) const = 0;
  // Of the block, from pinned memory to the device.
  virtual absl::Status Upload(size_t block, const Piece& piece) = 0;
  // The device can copy from there by itself: pinned memory of the caller's.
  virtual bool Reaches(const void* from, size_t bytes) const = 0;
  // `bytes` from there to byte `to` of the block. REQUIRES: Reaches; what lies there stays until
  // the step has ended.
  virtual absl::Status UploadFrom(size_t block, const void* from, size_t to, size_t bytes) = 0;
  // StepProgram::Index in the block, when the uploads so far are there.
  virtual absl::Status Index(size_t block, const StepShape& shape) = 0;
  // Steps go on when the uploads so far and the block's Index are done.
  virtual absl::Status HoldBack(size_t block) = 0;
  // Returns when all uploads and sorts so far are done.
  virtual absl::Status Wait() = 0;
};

class StepInputs {
 public:
  // `shape`, `plan` and `device` outlive this.
  StepInputs(const WideDeepShape& shape, const NetPlan& plan, int threads, InputDevice* device)
      : shape_(shape), plan_(plan), threads_(threads), device_(*device) {}

  // Room for a step in the current block.
  absl::Status Reserve(const StepShape& shape);
  // As DenseNet::Announce: of several the last one counts.
  void Announce(ComingBatch next) { announced_ = std::move(next); }

  // A step on `input` begins: its batch is in the current block or on its way there, sorted when
  // `training`. Training uses the batch that was brought up ahead when it is this one, and else
  // drops it; a forward pass leaves it.
  absl::Status Begin(const NetInput& input, bool training);
  // The rest goes up; what the step launches from now on finds all of it.
  absl::Status AddValues(const NetInput& input, const StepHeader& header);
  // The announced batch goes up in the other block, beside the step. What fails is forgotten, and
  // so is a batch without examples.
  void BringNext();

  // The current block on the device.
  size_t block() const { return current_; }
  char* data() const { return device_.data(current_); }
  // The step that began last found its batch there; such steps so far.
  bool ahead() const { return ahead_; }
  uint64_t steps_ahead() const { return steps_ahead_; }
  // GiveBack has been done: batches no longer go up ahead.
  bool alone() const { return alone_; }

  // Drops what was brought up ahead, gives the memory back and brings no more: others need it.
  // False when that has been done before.
  bool GiveBack();

 private:
  size_t other() const { return 1 - current_; }
  absl::Status Reserve(size_t block, const InputLayout& layout);
  absl::Status Stage(size_t block, const NetInput& input, bool sort);
  bool Staged(const NetInput& input) const;

  const WideDeepShape& shape_;
  const NetPlan& plan_;
  const int threads_;
  InputDevice& device_;
  size_t up_bytes_ = 0, bytes_ = 0;  // the largest that were asked for
  size_t current_ = 0;
  ComingBatch announced_;   // since the last BringNext
  ComingBatch staged_;      // in the other block
  bool in_flight_ = false;  // work may still use the other block
  bool alone_ = false;      // one block is all there is
  bool ahead_ = false;
  uint64_t steps_ahead_ = 0;
};

}  // namespace sluice::cuda

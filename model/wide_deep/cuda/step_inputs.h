// The two blocks of input of a network. While a step computes on one block, the batch of the next
// step is uploaded to the other block and its keys are sorted there.
//
// Invariants: A step reads the current block, which nothing else touches until the step has ended.
// The other block holds the batch that was uploaded ahead, if any. A batch is recognised by its
// addresses; `staged_` keeps the batch alive, so no other batch can have them.
//
// Memory: the second block is allocated with the first announced batch, and freed for good when the
// device has no room for both.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "model/net/dense_net.h"
#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_staging.h"

namespace sluice::cuda {

// The calls that blocks 0 and 1 make to a device. CudaInputDevice runs them on the device; tests
// run them on the host. Uploads run in order and sorts run in order; both run in parallel with the
// steps.
class InputDevice {
 public:
  virtual ~InputDevice() = default;
  // Makes room for `up_bytes` of pinned memory and `bytes` on the device. Contents and addresses
  // may change. RESOURCE_EXHAUSTED names the wanted size and the limit.
  // REQUIRES: no work in flight uses the block.
  virtual absl::Status Reserve(size_t block, size_t up_bytes, size_t bytes) = 0;
  // Frees the block's memory.
  // REQUIRES: no work in flight uses the block.
  virtual void Release(size_t block) = 0;
  virtual char* pinned(size_t block) const = 0;
  virtual char* data(size_t block) const = 0;
  // Copies a piece of the block from pinned memory to the device.
  virtual absl::Status Upload(size_t block, const Piece& piece) = 0;
  // Whether the memory is pinned memory of the caller, from which the device can copy directly.
  virtual bool Reaches(const void* from, size_t bytes) const = 0;
  // Copies `bytes` bytes of such memory to offset `to` of the block.
  // REQUIRES: Reaches, and the memory stays unchanged until the step has ended.
  virtual absl::Status UploadFrom(size_t block, const void* from, size_t to, size_t bytes) = 0;
  // Runs StepProgram::Index on the block once the uploads so far are done.
  virtual absl::Status Index(size_t block, const StepShape& shape) = 0;
  // Makes steps wait for the uploads so far and for the block's Index.
  virtual absl::Status HoldBack(size_t block) = 0;
  // Returns when all uploads and sorts so far are done.
  virtual absl::Status Wait() = 0;
};

class StepInputs {
 public:
  // `shape`, `plan` and `device` must outlive this object.
  StepInputs(const WideDeepShape& shape, const NetPlan& plan, int threads, InputDevice* device)
      : shape_(shape), plan_(plan), threads_(threads), device_(*device) {}

  // Makes room for a step in the current block.
  absl::Status Reserve(const StepShape& shape);
  // As DenseNet::Announce: a later announcement replaces an earlier one.
  void Announce(ComingBatch next) { announced_ = std::move(next); }

  // Begins a step on `input`. Its batch is then in the current block or on its way there, with the
  // keys sorted if `training`. Training uses the batch that was uploaded ahead if it is this batch,
  // and drops it otherwise. A forward pass keeps it.
  absl::Status Begin(const NetInput& input, bool training);
  // Uploads the rest of the input. Work that the step launches after this call finds all of it.
  absl::Status AddValues(const NetInput& input, const StepHeader& header);
  // Uploads the announced batch to the other block, in parallel with the step. A batch that fails,
  // or that has no examples, is dropped: its step uploads it again.
  void BringNext();

  // The current block on the device.
  size_t block() const { return current_; }
  char* data() const { return device_.data(current_); }
  // Whether the latest step found its batch uploaded ahead, and the number of such steps.
  bool ahead() const { return ahead_; }
  uint64_t steps_ahead() const { return steps_ahead_; }
  // Whether GiveBack was called: batches are then no longer uploaded ahead.
  bool alone() const { return alone_; }

  // Drops the batch that was uploaded ahead, frees the other block for users who need the memory,
  // and uploads nothing ahead from then on. False if that was done before.
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
  size_t up_bytes_ = 0, bytes_ = 0;  // the largest sizes so far
  size_t current_ = 0;
  ComingBatch announced_;   // not uploaded yet
  ComingBatch staged_;      // uploaded to the other block
  bool in_flight_ = false;  // work may still use the other block
  bool alone_ = false;      // there is only one block
  bool ahead_ = false;
  uint64_t steps_ahead_ = 0;
};

}  // namespace sluice::cuda

// InputDevice on a CUDA device. Pinned memory is uploaded on the stream for copies. Keys are sorted
// on a separate stream, by a CUDA graph.
//
// Invariants: A graph holds the address of its block. The address is part of the graph's key, so
// each of the two blocks has its own graph.
//
// Memory: device blocks count towards the network's memory.
//
// Thread safety: one thread, the network's.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "common/cuda/cuda_memory.h"
#include "common/cuda/cuda_stream.h"
#include "model/net/cuda/pinned_memory.h"
#include "model/wide_deep/cuda/cuda_ops.h"
#include "model/wide_deep/cuda/graph_cache.h"
#include "model/wide_deep/cuda/step_inputs.h"
#include "model/wide_deep/cuda/step_program.h"

namespace sluice::cuda {

class CudaInputDevice : public InputDevice {
 public:
  // Steps run on `compute`; callers may keep values in `pinned`. All arguments must outlive this
  // object.
  // REQUIRES: the device is current.
  static absl::StatusOr<std::unique_ptr<CudaInputDevice>> Create(const Stream* up,
                                                                 const Stream* compute,
                                                                 const StepProgram* program,
                                                                 const PinnedMemory* pinned,
                                                                 DeviceMemory* memory);
  ~CudaInputDevice() override;

  absl::Status Reserve(size_t block, size_t up_bytes, size_t bytes) override;
  void Release(size_t block) override;
  char* pinned(size_t block) const override { return blocks_[block].pinned.data(); }
  char* data(size_t block) const override { return blocks_[block].device.data(); }
  absl::Status Upload(size_t block, const Piece& piece) override;
  bool Reaches(const void* from, size_t bytes) const override { return pinned_.Holds(from, bytes); }
  absl::Status UploadFrom(size_t block, const void* from, size_t to, size_t bytes) override;
  absl::Status Index(size_t block, const StepShape& shape) override;
  absl::Status HoldBack(size_t block) override;
  absl::Status Wait() override;
  // Time of the block's last Index.
  // REQUIRES: it has ended.
  absl::StatusOr<double> IndexSeconds(size_t block) const { return blocks_[block].index.Seconds(); }

 private:
  struct Block {
    explicit Block(DeviceMemory* memory) : device(memory, "a batch with its values") {}
    PinnedBlock pinned;
    DeviceBlock device;
    Span index;
  };
  CudaInputDevice(const Stream* up, const Stream* compute, const StepProgram* program,
                  const PinnedMemory* pinned, DeviceMemory* memory)
      : up_(*up),
        compute_(*compute),
        program_(*program),
        pinned_(*pinned),
        blocks_{{Block(memory), Block(memory)}} {}

  const Stream& up_;
  const Stream& compute_;
  const StepProgram& program_;
  const PinnedMemory& pinned_;  // memory of callers
  std::array<Block, 2> blocks_;
  Stream index_;
  Event batch_up_, values_up_;
  std::unique_ptr<CudaOps> ops_;
  GraphCache graphs_;
};

}  // namespace sluice::cuda

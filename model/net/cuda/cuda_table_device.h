// TableDevice on a CUDA device: pinned memory that goes up on the stream for copies, kernels on the
// compute stream.
//
// Invariants: kernels wait for what they read, and run between the network's steps, which are on
// the same compute stream. Memory: blocks count as the network's; two stages of what goes up, as
// large as the largest, on the device and pinned. Thread safety: one thread, the network's.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/net/cuda/cuda_memory.h"
#include "model/net/cuda/cuda_stream.h"
#include "model/net/cuda/table_device.h"

namespace sluice::cuda {

class CudaTableDevice : public TableDevice {
 public:
  struct Options {
    int ordinal = 0;
    const Stream* up = nullptr;
    const Stream* compute = nullptr;
    DeviceMemory* memory = nullptr;
    std::atomic<double>* busy_seconds = nullptr;  // kernels are added, by the calling thread alone
    // What to lower when memory is out; a literal.
    const char* advice = "train.batch_size";
    // Gives back memory of the network that it can do without; false: there is none.
    std::function<bool()> make_room = [] { return false; };
  };
  // The device is current, and all that `options` points to outlives this.
  static absl::StatusOr<std::unique_ptr<TableDevice>> Create(const Options& options);
  ~CudaTableDevice() override;

  std::unique_ptr<TableBlock> NewBlock(const char* what) override;
  size_t BytesLeft() const override;
  absl::Status Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                   absl::FunctionRef<void(const char*, TableOps*)> launch) override;
  absl::Status Download(const char* from, size_t bytes,
                        absl::FunctionRef<void(const char*)> take) override;

 private:
  // What goes up for one Run; used again when its kernels have ended.
  struct Stage {
    explicit Stage(const Options& options)
        : device(options.memory, "values on their way to the device", options.advice) {}
    PinnedBlock pinned;
    DeviceBlock device;
    Event up, begin, end;  // copied; kernels
    bool used = false;
  };
  explicit CudaTableDevice(const Options& options)
      : options_(options), stages_{{Stage(options), Stage(options)}} {}
  // Of the stage's block on the device.
  absl::Status Reserve(Stage* stage, size_t bytes);
  // Waits until the stage may be used again.
  absl::Status Await(Stage* stage);

  const Options options_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
  PinnedBlock down_;
};

}  // namespace sluice::cuda

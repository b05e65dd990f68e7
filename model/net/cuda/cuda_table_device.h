// TableDevice on a CUDA device: uploads from pinned memory and runs kernels on the compute stream.
//
// Uploads are on the stream for copies.
//
// Invariants: kernels wait for the data that they read. They run between the network's steps, which
// are on the same compute stream.
//
// Memory: blocks count as the network's. There are two upload stages, each as large as its largest
// upload, on the device and in pinned memory.
//
// Thread safety: one thread. It is the network's thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/cuda/cuda_memory.h"
#include "common/cuda/cuda_stream.h"
#include "model/net/cuda/table_device.h"

namespace sluice::cuda {

class CudaTableDevice : public TableDevice {
 public:
  struct Options {
    int ordinal = 0;
    const Stream* up = nullptr;
    const Stream* compute = nullptr;
    DeviceMemory* memory = nullptr;
    std::atomic<double>* busy_seconds = nullptr;  // the calling thread alone adds its kernels' time
    // The option to lower when memory runs out; a literal.
    const char* advice = "train.batch_size";
    // Releases memory that the network can do without; false when there is none.
    std::function<bool()> make_room = [] { return false; };
  };
  // REQUIRES: the device is current, and everything that `options` points to outlives this object.
  static absl::StatusOr<std::unique_ptr<TableDevice>> Create(const Options& options);
  ~CudaTableDevice() override;

  std::unique_ptr<TableBlock> NewBlock(const char* what) override;
  size_t BytesLeft() const override;
  absl::Status Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                   absl::FunctionRef<void(const char*, TableOps*)> launch) override;
  absl::Status Download(const char* from, size_t bytes,
                        absl::FunctionRef<void(const char*)> take) override;

 private:
  // The upload of one Run; reused when its kernels have ended.
  struct Stage {
    explicit Stage(const Options& options)
        : device(options.memory, "values being copied to the device", options.advice) {}
    PinnedBlock pinned;
    DeviceBlock device;
    Event up, begin, end;  // end of the copy; begin and end of the kernels
    bool used = false;
  };
  explicit CudaTableDevice(const Options& options)
      : options_(options), stages_{{Stage(options), Stage(options)}} {}
  // Reserves the stage's block on the device.
  absl::Status Reserve(Stage* stage, size_t bytes);
  // Waits until the stage may be used again.
  absl::Status Await(Stage* stage);

  const Options options_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
  PinnedBlock down_;
};

}  // namespace sluice::cuda

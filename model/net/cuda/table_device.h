// The operations of a device that holds parameters: growing memory, copies up and down, kernels.
//
// CudaTableDevice implements them on a device; in tests the same classes run on the host.
//
// Invariants: everything happens in the order of the calls, and in order with the network's steps.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/net/cuda/table_kernels.h"

namespace sluice::cuda {

// Kernel launches. Pointers in the arguments are device memory.
class TableOps {
 public:
  virtual ~TableOps() = default;
  virtual void Fill(const FillArgs& args) = 0;
  virtual void Delta(const DeltaArgs& args) = 0;
  virtual void Merge(const MergeArgs& args) = 0;
  virtual void Scales(const UpdateArgs& args) = 0;
  virtual void Update(const UpdateArgs& args) = 0;
  virtual void Squares(const SquaresArgs& args) = 0;
  virtual void Norm(const NormArgs& args) = 0;
};

class TableBlock {
 public:
  virtual ~TableBlock() = default;
  virtual char* data() const = 0;
  virtual size_t capacity() const = 0;
  // Reserves at least `bytes`; the address may change. With `keep` the contents stay even when the
  // call fails, unless it returns DATA_LOSS. RESOURCE_EXHAUSTED names the wanted size and the
  // limit.
  virtual absl::Status Reserve(size_t bytes, bool keep) = 0;
};

class TableDevice {
 public:
  virtual ~TableDevice() = default;
  // `what` is a name for messages, such as "Geo's local rows". The device outlives the block.
  virtual std::unique_ptr<TableBlock> NewBlock(const char* what) = 0;
  // Returns the bytes that blocks may still take: the smaller of the room below the limit and the
  // device's free memory.
  virtual size_t BytesLeft() const = 0;
  // Lets `fill` write `bytes` of host memory and copies them to the device. `launch` then launches
  // the kernels that read them, at the device address that it gets, aligned to 256 bytes.
  virtual absl::Status Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                           absl::FunctionRef<void(const char*, TableOps*)> launch) = 0;
  // Copies device memory [from, from + bytes) to the host, where `take` reads it.
  virtual absl::Status Download(const char* from, size_t bytes,
                                absl::FunctionRef<void(const char*)> take) = 0;
};

// Gradients that a step has left on the device, for one update.
struct DeviceGradients {
  bool present = false;
  const float* rows = nullptr;  // [num_rows][dim]
  size_t num_rows = 0;
  std::vector<const float*> dense;  // by table
  float factor = 1;                 // 1 / loss scale
};

}  // namespace sluice::cuda

// What parameters that stay on a device need of it: memory that grows, values that go up and come
// down, kernels. On the device: CudaTableDevice; in tests the same classes run on the host.
//
// Invariants: everything happens in the order of the calls, and in order with the network's steps.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/net/cuda/table_kernels.h"

namespace sluice::cuda {

// Launches. Pointers are device memory.
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
  // At least `bytes`; the address may change. `keep`: the contents stay, also when it fails, unless
  // with DATA_LOSS: then they are gone for good. RESOURCE_EXHAUSTED names wanted and limit.
  virtual absl::Status Reserve(size_t bytes, bool keep) = 0;
};

class TableDevice {
 public:
  virtual ~TableDevice() = default;
  // what: "Geo's local rows", for messages. The block ends before the device.
  virtual std::unique_ptr<TableBlock> NewBlock(const char* what) = 0;
  // Bytes that blocks may hold beside what is held: of the bound, and of what the device has.
  virtual size_t BytesLeft() const = 0;
  // `fill` writes `bytes` of host memory; they go up, and `launch` launches what reads them at the
  // device address that it is given, aligned to kAlignment.
  virtual absl::Status Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                           absl::FunctionRef<void(const char*, TableOps*)> launch) = 0;
  // Device memory [from, from + bytes) comes down; `take` reads it.
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

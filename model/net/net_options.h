// The worker's choice of where and how a network computes, as opposed to the job's.
//
// Thread safety: one thread. Copies are independent.
#pragma once

#include <cstddef>
#include <string>

namespace sluice {

struct ComputeDevice {
  enum Kind { kCpu, kCuda };
  Kind kind = kCpu;
  int ordinal = 0;  // for kCuda: index among the devices that CUDA_VISIBLE_DEVICES allows
};
// "cpu" or "cuda:N".
std::string NameOf(const ComputeDevice& device);

// The precision of the operands of the hidden layers' products in training; sums are float32. A
// forward pass alone is always float32.
enum class MatmulPrecision {
  kJob,   // train.compute_dtype of the job
  kF32,   // exact float32 (no TF32)
  kTf32,  // CUDA only
  kBf16,
  kFp16,  // CUDA only; dynamic loss scaling
};
// "job", "f32", "tf32", "bf16" or "fp16".
const char* NameOf(MatmulPrecision precision);

struct NetOptions {
  ComputeDevice device;
  int threads = 1;       // CPU: for everything; CUDA: for copies into and out of pinned memory
  size_t max_batch = 0;  // memory is allocated for it; a larger batch makes it grow
  // Training steps are computed in passes over at most this many examples, so that activations take
  // the memory of one pass. 0: in one pass.
  size_t pass_examples = 0;
  MatmulPrecision precision = MatmulPrecision::kJob;
  // CUDA: holds at most this share of the device's memory, 0 < fraction <= 1.
  double device_memory_fraction = 0.7;
};

inline NetOptions CpuNet(int threads, size_t max_batch) {
  NetOptions options;
  options.threads = threads;
  options.max_batch = max_batch;
  return options;
}

}  // namespace sluice

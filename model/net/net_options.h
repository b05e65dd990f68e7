// Where and how a network computes: what a worker chooses, not the job.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct ComputeDevice {
  enum Kind { kCpu, kCuda };
  Kind kind = kCpu;
  int ordinal = 0;  // of kCuda: among the devices that CUDA_VISIBLE_DEVICES shows
};
// "cpu" or "cuda:N".
std::string NameOf(const ComputeDevice& device);

// Of the operands of the hidden layers' products in training; sums are float32. A forward pass
// alone is always float32.
enum class MatmulPrecision {
  kJob,   // train.compute_dtype of the job
  kF32,   // exact float32 (no TF32)
  kTf32,  // CUDA only
  kBf16,
  kFp16,  // CUDA only; dynamic loss scaling
};
// "job", "f32", "tf32", "bf16" or "fp16".
absl::StatusOr<MatmulPrecision> ParseMatmulPrecision(absl::string_view text);
const char* NameOf(MatmulPrecision precision);

struct NetOptions {
  ComputeDevice device;
  int threads = 1;       // CPU: of everything; CUDA: of copies into and out of pinned memory
  size_t max_batch = 0;  // memory is made for it; a larger batch grows it
  MatmulPrecision precision = MatmulPrecision::kJob;
  // CUDA: at most so much of the device's memory is held, 0 < fraction <= 1.
  double device_memory_fraction = 0.7;
};

inline NetOptions CpuNet(int threads, size_t max_batch) {
  NetOptions options;
  options.threads = threads;
  options.max_batch = max_batch;
  return options;
}

}  // namespace sluice

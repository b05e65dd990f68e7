// Owners of a CUDA stream, of an event, and of two events that measure the time between them.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "common/cuda/cuda_status.h"

namespace sluice::cuda {

class Stream {
 public:
  Stream() = default;
  ~Stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Creates it on the current device. It does not wait for the default stream.
  absl::Status Create() {
    return CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() = default;
  ~Event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  absl::Status Create(bool timing) {
    return CudaStatus(
        cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  }
  cudaEvent_t get() const { return event_; }

  absl::Status Record(const Stream& stream) {
    return CudaStatus(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
  }
  // Makes all later work on `stream` wait for the last Record.
  absl::Status HoldBack(const Stream& stream) const {
    return CudaStatus(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The work on a stream between two Records.
struct Span {
  absl::Status Create() {
    absl::Status status = begin.Create(/*timing=*/true);
    status.Update(end.Create(/*timing=*/true));
    return status;
  }
  // The duration.
  // REQUIRES: the stream has reached `end`.
  absl::StatusOr<double> Seconds() const {
    float milliseconds = 0;
    SLUICE_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    return milliseconds * 1e-3;
  }
  Event begin, end;
};

}  // namespace sluice::cuda

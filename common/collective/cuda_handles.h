// Owners of what the NCCL engine holds of a CUDA device: streams, events and memory.
//
// Thread safety: one thread, with the device current.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {

// RESOURCE_EXHAUSTED when memory has run out, INTERNAL otherwise; names the call.
inline absl::Status CudaError(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // so that the next call does not report it
  const std::string text = absl::StrCat(call, ": ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

class CudaStream {
 public:
  CudaStream() = default;
  ~CudaStream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  absl::Status Create() {
    return CudaError(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags");
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent() = default;
  ~CudaEvent() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  absl::Status Create() {
    return CudaError(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                     "cudaEventCreateWithFlags");
  }
  absl::Status Record(const CudaStream& stream) {
    return CudaError(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
  }
  // Makes all later work on `stream` wait for the last Record.
  absl::Status HoldBack(const CudaStream& stream) const {
    return CudaError(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Memory of the device, or pinned memory of the host. It only grows; growing loses the contents.
template <bool kPinned>
class CudaBuffer {
 public:
  CudaBuffer() = default;
  ~CudaBuffer() { Release(); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  // REQUIRES: no work in flight uses the buffer.
  absl::Status Reserve(size_t bytes) {
    if (bytes <= capacity_) return absl::OkStatus();
    Release();
    void* made = nullptr;
    const cudaError_t error =
        kPinned ? cudaHostAlloc(&made, bytes, cudaHostAllocDefault) : cudaMalloc(&made, bytes);
    if (error != cudaSuccess)
      return CudaError(error, absl::StrCat(kPinned ? "cudaHostAlloc" : "cudaMalloc", " of ", bytes,
                                           " bytes for exchanging gradients"));
    data_ = static_cast<char*>(made);
    capacity_ = bytes;
    return absl::OkStatus();
  }
  char* data() const { return data_; }

 private:
  void Release() {
    if (data_ != nullptr) (void)(kPinned ? cudaFreeHost(data_) : cudaFree(data_));
    data_ = nullptr;
    capacity_ = 0;
  }
  char* data_ = nullptr;
  size_t capacity_ = 0;
};
using CudaDeviceBuffer = CudaBuffer<false>;
using CudaPinnedBuffer = CudaBuffer<true>;

}  // namespace sluice

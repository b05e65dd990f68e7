// Implements on the simulated devices the calls of the CUDA runtime that the CUDA backend makes. A
// program that links this file does not use the real runtime.
//
// Where the runtime's documentation leaves a choice, this file takes the least convenient one:
//   cudaMemcpy does not wait for streams, and a copy to a device may arrive after it returns.
//   Freed memory is gone at once, even if work still uses it.
//   Asynchronous copies between host and device need pinned memory.
// A call that is made to fail (World::FailCall) has no effect, except that a call that waits has
// waited.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/model/wide_deep/cuda/simulated/world.h"

using sluice::cuda::simulated::Capture;
using sluice::cuda::simulated::Event;
using sluice::cuda::simulated::MemoryKind;
using sluice::cuda::simulated::Stream;
using sluice::cuda::simulated::World;

struct CUstream_st : Stream {};
struct CUevent_st : Event {};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  int device;
  std::vector<std::function<void()>> work;
};

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
thread_local bool device_chosen = false;
thread_local Capture* capturing = nullptr;  // the capture of this thread

cudaError_t Fail(cudaError_t error) { return last_error = error; }

// Begins a call that World::FailCall can make fail.
#define SIMULATED_CALL_MAY_FAIL(error) \
  if (World::Get().Fails()) return Fail(error)

// Reads CUDA_VISIBLE_DEVICES as the driver does: up to the first device that does not exist.
std::vector<int> VisibleDevices() {
  std::vector<int> devices;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int device = 0; visible == nullptr && device < World::Get().devices(); ++device)
    devices.push_back(device);
  if (visible == nullptr) return devices;
  for (const absl::string_view part : absl::StrSplit(visible, ',')) {
    int device = 0;
    if (!absl::SimpleAtoi(part, &device) || device < 0 || device >= World::Get().devices()) break;
    devices.push_back(device);
  }
  return devices;
}
bool Visible(int device) {
  return device >= 0 && device < static_cast<int>(VisibleDevices().size());
}

// The stream of calls that name no stream.
Stream* DefaultStream() {
  static auto* streams = new std::map<int, Stream>;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  Stream& stream = (*streams)[current_device];
  stream.device = current_device;
  return &stream;
}

// Call it first in a function that is not allowed during a capture. Returns true, and breaks the
// capture, when this thread captures.
bool Forbidden() {
  if (capturing == nullptr) return false;
  capturing->broken = true;
  return true;
}

bool OnDevice(const void* at, size_t bytes) {
  return World::Get().memory().Holds(MemoryKind::kDevice, current_device, at, bytes);
}
bool Pinned(const void* at, size_t bytes) {
  return World::Get().memory().Holds(MemoryKind::kPinned, 0, at, bytes);
}

// Aborts on a use of CUDA that the simulated devices do not model.
[[noreturn]] void NotSimulated(const char* what) {
  std::fprintf(stderr, "the simulated CUDA runtime does not support %s\n", what);
  std::abort();
}

cudaError_t Put(cudaStream_t stream, std::function<void()> run) {
  if (stream == nullptr) NotSimulated("work on the default stream");
  if (stream->device != current_device) return Fail(cudaErrorInvalidResourceHandle);
  World::Get().streams().Put(
      stream, World::Get().works() ? std::move(run) : [] {});
  return cudaSuccess;
}

// The real runtime would silently use the first device here, so a missing choice would not show.
void ExpectDeviceChosen() {
  if (!device_chosen) NotSimulated("memory calls of a thread that has chosen no device");
}

cudaError_t Allocate(MemoryKind kind, void** to, size_t bytes) {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  ExpectDeviceChosen();
  SIMULATED_CALL_MAY_FAIL(cudaErrorMemoryAllocation);
  *to = World::Get().memory().Allocate(kind, current_device, bytes);
  return *to == nullptr ? Fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t Free(MemoryKind kind, void* block) {
  if (block == nullptr) return cudaSuccess;
  ExpectDeviceChosen();
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  return World::Get().memory().Free(kind, block) ? cudaSuccess : Fail(cudaErrorInvalidValue);
}

// True when both ends of a copy lie in memory that this kind of copy allows.
bool MayCopy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind, bool pinned) {
  const auto host = [&](const void* at) {
    return pinned ? Pinned(at, bytes) : !World::Get().memory().Knows(at) || Pinned(at, bytes);
  };
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return OnDevice(to, bytes) && host(from);
    case cudaMemcpyDeviceToHost:
      return host(to) && OnDevice(from, bytes);
    case cudaMemcpyDeviceToDevice:
      return OnDevice(to, bytes) && OnDevice(from, bytes);
    default:
      NotSimulated("this kind of copy");
  }
}

// Call it before waiting for `stream`. Fails, and breaks the capture, while one is under way.
cudaError_t Settled(Stream* stream) {
  if (stream->capture != nullptr) {
    stream->capture->broken = true;
    return Fail(cudaErrorStreamCaptureUnsupported);
  }
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

}  // namespace

namespace sluice::cuda::emulated {

// emulated_device.h declares it too, but cannot be included together with CUDA's headers.
bool PutOnStream(cudaStream_t stream, std::function<void()> run);
bool PutOnStream(cudaStream_t stream, std::function<void()> run) {
  if (World::Get().LaunchFails()) return Fail(cudaErrorNoKernelImageForDevice), false;
  return Put(stream, std::move(run)) == cudaSuccess;
}

}  // namespace sluice::cuda::emulated

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "another cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "a simulated error"; }

cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(VisibleDevices().size());
  return *count == 0 ? Fail(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!Visible(device)) return Fail(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "a simulated device");
  const uint32_t host = World::Get().host();
  std::memcpy(properties->uuid.bytes, &host, sizeof host);
  properties->uuid.bytes[15] = static_cast<char>(VisibleDevices()[device]);
  properties->major = 9;
  properties->totalGlobalMem = World::Get().memory().total();
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!Visible(device)) return Fail(cudaErrorInvalidDevice);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  current_device = device;
  device_chosen = true;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* there, size_t* total) {
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  *total = World::Get().memory().total();
  *there = *total - World::Get().memory().used(current_device);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  World::Get().streams().FinishAll();
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, size_t bytes) { return Allocate(MemoryKind::kDevice, to, bytes); }
cudaError_t cudaFree(void* block) { return Free(MemoryKind::kDevice, block); }
cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) {
  return Allocate(MemoryKind::kPinned, to, bytes);
}
cudaError_t cudaFreeHost(void* block) { return Free(MemoryKind::kPinned, block); }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  if (!MayCopy(to, from, bytes, kind, /*pinned=*/false)) return Fail(cudaErrorInvalidValue);
  Stream* const stream = DefaultStream();
  if (kind == cudaMemcpyHostToDevice) {
    // The caller may change its memory at once, but the bytes reach the device later.
    const char* const begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    World::Get().streams().Put(stream, [=] { std::memcpy(to, staged->data(), bytes); });
    return cudaSuccess;
  }
  World::Get().streams().Put(stream, [=] { std::memcpy(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost) World::Get().streams().Finish(stream->last);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes > 0 && !MayCopy(to, from, bytes, kind, /*pinned=*/true))
    return Fail(cudaErrorInvalidValue);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  if (kind != cudaMemcpyDeviceToDevice)
    World::Get().AddCopy(kind == cudaMemcpyHostToDevice ? from : to);
  return Put(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0 && !OnDevice(to, bytes)) return Fail(cudaErrorInvalidValue);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  return Put(stream, [=] { std::memset(to, value, bytes); });
}
// Like cudaMemcpy to a device, it may return before the device is done.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  if (bytes > 0 && !OnDevice(to, bytes)) return Fail(cudaErrorInvalidValue);
  World::Get().streams().Put(DefaultStream(), [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  *stream = new CUstream_st;
  ++World::Get().handles();
  (*stream)->device = current_device;
  return cudaSuccess;
}
// Work on the stream still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --World::Get().handles();
  return delete stream, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const cudaError_t error = Settled(stream);
  if (error != cudaSuccess) return error;
  World::Get().streams().Finish(stream->last);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream->capture != nullptr) NotSimulated("an event in a capture");
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  World::Get().streams().HoldBack(stream, *event);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  *event = new CUevent_st;
  ++World::Get().handles();
  (*event)->device = current_device;
  (*event)->timing = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  --World::Get().handles();
  return delete event, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture != nullptr) NotSimulated("an event in a capture");
  if (event->device != stream->device) return Fail(cudaErrorInvalidResourceHandle);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  World::Get().streams().Record(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  World::Get().streams().Finish(event->last);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (Forbidden()) return Fail(cudaErrorStreamCaptureUnsupported);
  return World::Get().streams().Ask(event->last) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->last == nullptr || end->last == nullptr || !begin->timing || !end->timing)
    return Fail(cudaErrorInvalidResourceHandle);
  if (!begin->last->done || !end->last->done) return Fail(cudaErrorNotReady);
  *milliseconds = static_cast<float>(end->last->ended - begin->last->ended) * 1e-3f;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeThreadLocal) NotSimulated("this mode of capture");
  if (capturing != nullptr) NotSimulated("two captures at once in one thread");
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  stream->capture = std::make_shared<Capture>();
  capturing = stream->capture.get();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream->capture == nullptr) return Fail(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = std::move(stream->capture);
  stream->capture = nullptr;
  capturing = nullptr;
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  if (capture->broken) return Fail(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(capture->work)};
  ++World::Get().handles();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --World::Get().handles();
  return delete graph, cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  *exec = new CUgraphExec_st{current_device, graph->work};
  ++World::Get().handles();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  --World::Get().handles();
  return delete exec, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (exec->device != current_device) return Fail(cudaErrorInvalidResourceHandle);
  SIMULATED_CALL_MAY_FAIL(cudaErrorUnknown);
  for (const std::function<void()>& run : exec->work) {
    const cudaError_t error = Put(stream, run);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // extern "C"

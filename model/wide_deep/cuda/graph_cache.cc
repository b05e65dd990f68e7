#include "model/wide_deep/cuda/graph_cache.h"

#include <algorithm>

namespace sluice::cuda {

absl::Status GraphCache::Run(const GraphKey& key, const Stream& stream,
                             const std::function<absl::Status()>& enqueue) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&key](const Entry& entry) { return entry.key == key; });
  if (it == entries_.end()) {
    entries_.emplace_front(key);
    if (entries_.size() > kMaxEntries) entries_.pop_back();
    return enqueue();
  }
  entries_.splice(entries_.begin(), entries_, it);
  if (it->graph == nullptr) SLUICE_RETURN_IF_ERROR(Capture(stream, enqueue, &it->graph));
  ++launches_;
  return CudaStatus(cudaGraphLaunch(it->graph, stream.get()), "cudaGraphLaunch");
}

absl::Status GraphCache::Capture(const Stream& stream, const std::function<absl::Status()>& enqueue,
                                 cudaGraphExec_t* exec) {
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  absl::Status status = enqueue();
  cudaGraph_t graph = nullptr;
  // Even a failed capture must be ended, or the stream would stay in capture mode.
  status.Update(CudaStatus(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture"));
  if (status.ok()) {
    status = CudaStatus(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate");
    if (!status.ok()) *exec = nullptr;
  }
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return status;
}

}  // namespace sluice::cuda

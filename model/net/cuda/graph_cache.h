// CUDA graphs of steps: what is put on the streams for the same phase and shape a second time is
// captured and from then on launched as one graph.
//
// Invariants: a graph holds the addresses it was captured with; Clear when one changes. The first
// time runs without capture, so that modules are loaded and plans made outside of it. At most
// kMaxEntries phases of shapes are known, the least recently used goes. Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <list>

#include "absl/status/status.h"
#include "model/net/cuda/cuda_stream.h"
#include "model/net/cuda/step_layout.h"

namespace sluice::cuda {

// Pieces of a step that are captured apart; kTrain + i is part i of training.
enum StepPhase : size_t { kIndex, kForward, kTrain };

class GraphCache {
 public:
  static constexpr size_t kMaxEntries = 64;

  // enqueue: puts the phase's work on `stream`; a function of phase, shape and where the dense
  // tensors are.
  absl::Status Run(size_t phase, const StepShape& shape, const char* dense, const Stream& stream,
                   const std::function<absl::Status()>& enqueue);
  void Clear() { entries_.clear(); }
  uint64_t launches() const { return launches_; }  // of graphs

 private:
  struct Entry {
    Entry(size_t p, const StepShape& s, const char* d) : phase(p), shape(s), dense(d) {}
    ~Entry() {
      if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    const size_t phase;
    const StepShape shape;
    const char* const dense;
    cudaGraphExec_t graph = nullptr;  // null: seen once
  };

  static absl::Status Capture(const Stream& stream, const std::function<absl::Status()>& enqueue,
                              cudaGraphExec_t* graph);

  std::list<Entry> entries_;  // the most recently used first
  uint64_t launches_ = 0;
};

}  // namespace sluice::cuda

// CUDA graphs of steps: what is put on the streams for the same phase and shape a second time is
// captured and from then on launched as one graph.
//
// Invariants: a graph holds the addresses it was captured with: those of its key, and others; Clear
// when one of the others changes. The first time runs without capture, so that modules are loaded
// and plans made outside of it. At most kMaxEntries keys are known, the least recently used goes; a
// graph that runs then ends first.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <list>

#include "absl/status/status.h"
#include "model/net/cuda/cuda_stream.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

// Pieces of a step that are captured apart; kTrain + i is part i of training.
enum StepPhase : size_t { kIndex, kForward, kTrain };

struct GraphKey {
  size_t phase;
  StepShape shape;
  const char* input;  // the block of input
  const char* dense;  // where the dense tensors are; null: in `input`
  bool operator==(const GraphKey& o) const {
    return phase == o.phase && shape == o.shape && input == o.input && dense == o.dense;
  }
};

class GraphCache {
 public:
  static constexpr size_t kMaxEntries = 128;

  // enqueue: puts the work on `stream`; a function of `key`.
  absl::Status Run(const GraphKey& key, const Stream& stream,
                   const std::function<absl::Status()>& enqueue);
  void Clear() { entries_.clear(); }
  uint64_t launches() const { return launches_; }  // of graphs

 private:
  struct Entry {
    explicit Entry(const GraphKey& k) : key(k) {}
    ~Entry() {
      if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    const GraphKey key;
    cudaGraphExec_t graph = nullptr;  // null: seen once
  };

  static absl::Status Capture(const Stream& stream, const std::function<absl::Status()>& enqueue,
                              cudaGraphExec_t* graph);

  std::list<Entry> entries_;  // the most recently used first
  uint64_t launches_ = 0;
};

}  // namespace sluice::cuda

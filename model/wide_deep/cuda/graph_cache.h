// CUDA graphs of steps. The work of a phase and shape is captured when it is enqueued for the
// second time, and from then on launched as one graph.
//
// Invariants: A graph holds the addresses that it was captured with: those in its key, and others.
// The owner calls Clear when one of the others changes. The first time runs without capture, since
// modules are loaded and plans are made then. At most kMaxEntries keys are kept; the least recently
// used one is dropped. A dropped graph that still runs ends first.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <list>

#include "absl/status/status.h"
#include "common/cuda/cuda_stream.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

// Parts of a step that are captured separately; kTrain + i is part i of training.
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

  // Runs the work that `enqueue` puts on `stream`. The work must depend on `key` only.
  absl::Status Run(const GraphKey& key, const Stream& stream,
                   const std::function<absl::Status()>& enqueue);
  void Clear() { entries_.clear(); }
  uint64_t launches() const { return launches_; }  // graphs launched so far

 private:
  struct Entry {
    explicit Entry(const GraphKey& k) : key(k) {}
    ~Entry() {
      if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    const GraphKey key;
    cudaGraphExec_t graph = nullptr;  // null: enqueued once, not captured yet
  };

  static absl::Status Capture(const Stream& stream, const std::function<absl::Status()>& enqueue,
                              cudaGraphExec_t* graph);

  std::list<Entry> entries_;  // the most recently used first
  uint64_t launches_ = 0;
};

}  // namespace sluice::cuda

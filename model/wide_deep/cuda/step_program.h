// The order of a step's kernels and products, and the arguments of each. Training consists of
// Index, which only needs the batch and may run in parallel with another step, and of parts that
// also need the values. A forward pass is a single part.
//
// Everything is a pure function of shape and pointers, so it can be captured in a CUDA graph.
//
// Shapes:
//   all matrices have B = shape.batch rows, including padding, which is 0 in activations and in
//   gradients.
//
// Thread safety: constant after construction.
#pragma once

#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_ops.h"

namespace sluice::cuda {

// The blocks of a step, laid out as in step_layout.h.
struct StepMemory {
  char* input = nullptr;
  char* work = nullptr;
  char* output = nullptr;
  // Dense tensors at the offsets InputLayout::dense; null: they are in `input`.
  const char* dense = nullptr;
};

class StepProgram {
 public:
  // `element` is the type of the products of training; `tf32` allows TF32 in f32 training. The
  // tables of `net` must outlive this object.
  StepProgram(const WideDeepShape& shape, const NetView& net, Element element, bool tf32);

  const NetPlan& plan() const { return plan_; }
  Element element() const { return element_; }

  // Sorts the keys by row. Reads the batch in `input` and writes to `input` only.
  void Index(const StepShape& shape, char* input, StepOps* ops) const;
  // Whether Index has any work.
  bool has_index(const StepShape& shape) const { return plan_.row_dim > 0 && shape.rows > 0; }
  // Computes the gradients of all tensors and rows, and the result, in parts [0, train_parts()).
  // After each part but the last, the weight gradient of one hidden layer is final, beginning with
  // the last layer.
  // REQUIRES: Index has ended, and the parts before are on the same stream.
  void Train(size_t part, const StepShape& shape, const StepMemory& memory, StepOps* ops) const;
  size_t train_parts() const { return plan_.hidden + 1; }
  // The dense tensor that is final after `part`; -1 after the last part, when all are.
  int FinalAfter(size_t part) const {
    return part < plan_.hidden ? static_cast<int>(2 * (plan_.hidden - 1 - part)) : -1;
  }
  // Computes the logits only, in f32.
  void Forward(const StepShape& shape, const StepMemory& memory, StepOps* ops) const;

 private:
  struct Step;  // one step's layouts and pointers

  void ForwardLayers(const Step& step, Element element, bool training, StepOps* ops) const;
  void Logits(const Step& step, Element element, bool training, StepOps* ops) const;
  // Computes d loss / d z of a level (1: the first hidden layer) with its bias gradient, and then
  // the gradient of the weights before it.
  void BackwardLayer(const Step& step, size_t level, StepOps* ops) const;
  // Computes dz(level + 1) x W^T, from which dz(level) follows; at level 0 for the embeddings only.
  void BackwardProduct(const Step& step, size_t level, StepOps* ops) const;
  void WideSums(const Step& step, StepOps* ops) const;
  void RowGradients(const Step& step, StepOps* ops) const;
  // The weights of a hidden layer as operands, and the elements of one of their rows in memory.
  const void* Weights(const Step& step, size_t layer, Element element) const;
  uint32_t WeightLd(size_t layer, Element element) const;

  const NetPlan plan_;
  const NetView net_;
  const Element element_;
  const bool tf32_;
  const float dropout_scale_;
};

}  // namespace sluice::cuda

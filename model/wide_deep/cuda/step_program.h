// The order of a step's kernels and products, and what each is given: training as Index, which
// needs the batch only and may run beside another step, and parts that also need the values; a
// forward pass.
//
// Shapes: B = shape.batch rows everywhere, padding included; padding is 0 in activations and in
// gradients. Everything is a pure function of shape and pointers, so that it can be captured in a
// CUDA graph.
//
// Thread safety: constant after construction.
#pragma once

#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_ops.h"

namespace sluice::cuda {

// Blocks laid out as in step_layout.h.
struct StepMemory {
  char* input = nullptr;
  char* work = nullptr;
  char* output = nullptr;
  // Dense tensors at InputLayout::dense; null: in `input`.
  const char* dense = nullptr;
};

class StepProgram {
 public:
  // element: of the products of training; tf32 allows it in f32 training. `net` outlives this.
  StepProgram(const WideDeepShape& shape, const NetView& net, Element element, bool tf32);

  const NetPlan& plan() const { return plan_; }
  Element element() const { return element_; }

  // Sorts the keys by row: reads the batch in `input`, writes there alone.
  void Index(const StepShape& shape, char* input, StepOps* ops) const;
  // Whether there is something to sort.
  bool has_index(const StepShape& shape) const { return plan_.row_dim > 0 && shape.rows > 0; }
  // Gradients of all tensors and rows, the result, in parts [0, train_parts()): after each but the
  // last, the weight gradient of one hidden layer is final, the last layer's first. REQUIRES: Index
  // has ended, and the parts before are on the same stream.
  void Train(size_t part, const StepShape& shape, const StepMemory& memory, StepOps* ops) const;
  size_t train_parts() const { return plan_.hidden + 1; }
  // The dense tensor that is final after a part; -1 after the last: all.
  int FinalAfter(size_t part) const {
    return part < plan_.hidden ? static_cast<int>(2 * (plan_.hidden - 1 - part)) : -1;
  }
  // Logits only; f32.
  void Forward(const StepShape& shape, const StepMemory& memory, StepOps* ops) const;

 private:
  struct Step;  // one step's layouts and pointers

  void ForwardLayers(const Step& step, Element element, bool training, StepOps* ops) const;
  void Logits(const Step& step, Element element, bool training, StepOps* ops) const;
  // d loss / d z of a level (1: the first hidden layer), with its bias gradient, then the gradient
  // of the weights before it.
  void BackwardLayer(const Step& step, size_t level, StepOps* ops) const;
  // dz(level + 1) x W^T, for dz(level); level 0: for the embeddings.
  void BackwardProduct(const Step& step, size_t level, StepOps* ops) const;
  void WideSums(const Step& step, StepOps* ops) const;
  void RowGradients(const Step& step, StepOps* ops) const;
  // Weights of a hidden layer as operands, and elements of their rows.
  const void* Weights(const Step& step, size_t layer, Element element) const;
  uint32_t WeightLd(size_t layer, Element element) const;

  const NetPlan plan_;
  const NetView net_;
  const Element element_;
  const bool tf32_;
  const float dropout_scale_;
};

}  // namespace sluice::cuda

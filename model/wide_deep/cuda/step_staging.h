// Copies between the caller's memory and the pinned blocks of a step, in parallel.
//
// Thread safety: pure functions on the memory they are given; they work with `threads` threads.
#pragma once

#include <vector>

#include "model/net/dense_net.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

// Bytes [begin, end) of a block.
struct Piece {
  size_t begin = 0, end = 0;
};

// Sum of the weights of the batch, in double, in order.
double SumOfWeights(const Batch& batch);
// resident: rows that the step reads by slot (NetInput::slots); null: NetInput::rows.
StepHeader MakeHeader(const NetInput& input, const float* resident, const Dropout& dropout,
                      double weight_sum, double loss_scale);

// Padded sizes of a batch with num_rows unique rows, and whether they can be counted:
// INVALID_ARGUMENT names what is too large.
StepShape ShapeOf(const Batch& batch, size_t num_rows);
absl::Status CheckSize(const Batch& batch, size_t num_rows);

// What goes up, each returning the piece that it filled: the batch with its sizes, of which only
// `batch`, `row_index` and `num_rows` of the input are read; dense tensors; the header with rows or
// slots of resident ones. Nothing of what lies on the device.
Piece FillBatch(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block);
Piece FillDense(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block);
Piece FillValues(const NetPlan& plan, const InputLayout& layout, const NetInput& input,
                 const StepHeader& header, int threads, char* block);

// Of what came down in `block`, to the caller's memory: one dense tensor; all gradients times
// `factor`, the hidden layers' weights only when `early` (else ReadTensor has taken them).
void ReadTensor(const NetPlan& plan, const OutputLayout& layout, const char* block, size_t tensor,
                int threads, NetGradients* gradients);
void ReadGradients(const NetPlan& plan, const OutputLayout& layout, const char* block,
                   size_t num_rows, float factor, bool early, int threads, NetGradients* gradients);

}  // namespace sluice::cuda

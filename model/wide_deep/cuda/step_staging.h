// Copies in parallel between the caller's memory and the pinned blocks of a step.
//
// Thread safety: pure functions on the memory that they are given; they use `threads` threads.
#pragma once

#include <vector>

#include "model/net/dense_net.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

// Bytes [begin, end) of a block.
struct Piece {
  size_t begin = 0, end = 0;
};

// The sum of the batch's weights, added in order in double.
double SumOfWeights(const Batch& batch);
// resident: rows that the step reads by slot (RowsInput::slots); null: it uses RowsInput::values.
StepHeader MakeHeader(const NetInput& input, const float* resident, const Dropout& dropout,
                      double weight_sum, double loss_scale);

// The padded sizes of a batch with num_rows unique rows. CheckSize returns INVALID_ARGUMENT, with
// the size, if 32-bit counters are too small for them.
StepShape ShapeOf(const Batch& batch, size_t num_rows);
absl::Status CheckSize(const Batch& batch, size_t num_rows);

// Fill a piece of the block for the upload, and return the piece. FillBatch writes the batch with
// its sizes and only reads `batch`, `row_index` and the number of rows of the input. FillDense
// writes the dense tensors. FillValues writes the header and the rows, or the slots of resident
// rows. Values that are on the device already are left out.
Piece FillBatch(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block);
Piece FillDense(const NetPlan& plan, const InputLayout& layout, const NetInput& input, int threads,
                char* block);
Piece FillValues(const NetPlan& plan, const InputLayout& layout, const NetInput& input,
                 const StepHeader& header, int threads, char* block);

// Copy downloaded gradients from `block` to the caller's memory. ReadTensor copies one dense
// tensor. ReadGradients copies all gradients times `factor`; it includes the hidden layers' weights
// only if `early`, since otherwise ReadTensor has copied them before.
void ReadTensor(const NetPlan& plan, const OutputLayout& layout, const char* block, size_t tensor,
                int threads, NetGradients* gradients);
void ReadGradients(const NetPlan& plan, const OutputLayout& layout, const char* block,
                   size_t num_rows, float factor, bool early, int threads, NetGradients* gradients);

}  // namespace sluice::cuda

// Launches the kernels of the .cu files from plain C++. Arguments are as in step_ops.h.
//
// Each call returns at once; cudaGetLastError reports a failed launch.
//
// Thread safety: safe.
#pragma once

#include "common/cuda/kernel_namespace.h"
#include "model/wide_deep/cuda/step_ops.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

// sparse_kernels.cu
void LaunchExpandCells(cudaStream_t stream, const BatchView& batch, uint32_t num_slots,
                       uint32_t rows, uint32_t* cells);
void LaunchSortPass(cudaStream_t stream, const SortArgs& args);
void LaunchFindRows(cudaStream_t stream, const StepHeader* header, const uint32_t* sorted_rows,
                    uint32_t rows, uint32_t* row_begin);
void LaunchGather(cudaStream_t stream, Element element, const NetView& net, const BatchView& batch,
                  uint32_t rows, uint32_t ld, void* to, uint32_t* overflow);
void LaunchRowGradients(cudaStream_t stream, const NetView& net, const BatchView& batch,
                        const RowGradientView& view, uint32_t keys, uint32_t rows);

// layer_kernels.cu
void LaunchConvertWeights(cudaStream_t stream, Element element, const float* weights, uint32_t in,
                          uint32_t out, uint32_t ld, void* to, uint32_t* overflow);
void LaunchBiasRelu(cudaStream_t stream, Element element, const BiasReluArgs& args);
void LaunchLogits(cudaStream_t stream, Element element, const NetView& net, const BatchView& batch,
                  const LogitArgs& args);
void LaunchOutputBackward(cudaStream_t stream, Element element, const BackwardArgs& args);
void LaunchHiddenBackward(cudaStream_t stream, Element element, const BackwardArgs& args);
void LaunchWideSums(cudaStream_t stream, const WideArgs& args);

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE

#define SLUICE_KERNELS_ON_STREAMS
#include "tests/model/wide_deep/cuda/emulated_device.h"
// Comes after emulated_device.h, which defines the CUDA keywords and launches of the kernels.
#include "common/collective/nccl_kernels.cu"

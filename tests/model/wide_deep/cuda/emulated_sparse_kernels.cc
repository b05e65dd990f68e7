#include "tests/model/wide_deep/cuda/emulated_device.h"
// Behind it.
#include "model/wide_deep/cuda/sparse_kernels.cu"

#include "tests/model/wide_deep/cuda/emulated_device.h"
// Must follow the emulated device, which it uses.
#include "model/wide_deep/cuda/sparse_kernels.cu"

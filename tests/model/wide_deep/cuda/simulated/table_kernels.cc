#define SLUICE_KERNELS_ON_STREAMS
#include "tests/model/wide_deep/cuda/emulated_device.h"
// Behind it.
#include "model/net/cuda/table_kernels.cu"

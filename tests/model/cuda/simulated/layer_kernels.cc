#define SLUICE_KERNELS_ON_STREAMS
#include "tests/model/cuda/emulated_device.h"
// Behind it.
#include "model/net/cuda/layer_kernels.cu"

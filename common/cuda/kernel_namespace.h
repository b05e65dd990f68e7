// Names the namespace of kernel launches after what runs them.
//
// Tests compile the .cu files a second time, for a device that is emulated on the host.
#pragma once

#ifndef SLUICE_KERNEL_NAMESPACE
#define SLUICE_KERNEL_NAMESPACE on_device
#endif

using cudaStream_t = struct CUstream_st*;  // as the CUDA runtime declares it

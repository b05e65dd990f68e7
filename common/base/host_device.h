// Defines SLUICE_HD, which marks an inline function that CUDA kernels call too.
//
// It is empty when the compiler does not compile CUDA.
#pragma once

#ifdef __CUDACC__
#define SLUICE_HD __host__ __device__
#else
#define SLUICE_HD
#endif

// SLUICE_HD marks an inline function that CUDA kernels call too; elsewhere it is empty.
#pragma once

#ifdef __CUDACC__
#define SLUICE_HD __host__ __device__
#else
#define SLUICE_HD
#endif

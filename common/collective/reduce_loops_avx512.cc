#include "common/base/bf16.h"
#include "common/collective/reduce_loops.h"

// CMake compiles this file for AVX-512, so only processors with these instructions can run its
// loops.
namespace sluice::internal {
namespace {
#include "common/collective/reduce_loops.inc"
}  // namespace

const ReduceLoops kAvx512ReduceLoops = Loops("avx512");

}  // namespace sluice::internal

#include "model/net/layer_loops.h"

// CMake compiles this file for AVX-512, so only processors with these instructions can run its
// loops.
namespace sluice::internal {
namespace {
#include "model/net/layer_loops.inc"
}  // namespace

const LayerLoops kAvx512LayerLoops = Loops("avx512");

}  // namespace sluice::internal

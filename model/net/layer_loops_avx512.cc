#include "model/net/layer_loops.h"

namespace sluice::internal {
namespace {
#include "model/net/layer_loops.inc"
}  // namespace

const LayerLoops kAvx512LayerLoops = Loops("avx512");

}  // namespace sluice::internal

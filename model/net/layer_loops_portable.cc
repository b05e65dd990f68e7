#include "model/net/layer_loops.h"

namespace sluice::internal {
namespace {
#include "model/net/layer_loops.inc"
}  // namespace

const LayerLoops kPortableLayerLoops = Loops("portable");

}  // namespace sluice::internal

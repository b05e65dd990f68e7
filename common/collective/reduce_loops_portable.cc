#include "common/base/bf16.h"
#include "common/collective/reduce_loops.h"

namespace sluice::internal {
namespace {
#include "common/collective/reduce_loops.inc"
}  // namespace

const ReduceLoops kPortableReduceLoops = Loops("portable");

}  // namespace sluice::internal

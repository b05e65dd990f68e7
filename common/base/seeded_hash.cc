#include "common/base/seeded_hash.h"

#include "common/base/random_id.h"

namespace sluice {

const uint64_t kHashSeed = RandomId();

}  // namespace sluice

// A hash of keys that peers cannot foresee, for tables in memory.
//
// Whoever chooses keys can make any number of them collide in a hash that he knows, and then every
// search walks through all of them. This one depends on a number that each process draws for
// itself, so nothing that is saved, sent or divided between shards may depend on it (hash.h).
//
// Source: Crosby and Wallach, "Denial of Service via Algorithmic Complexity Attacks" (2003).
#pragma once

#include <cstdint>

#include "common/base/mix_hash.h"

namespace sluice {

extern const uint64_t kHashSeed;  // drawn before main

inline uint64_t SeededHash(uint64_t key) { return MixHash(key ^ kHashSeed); }

}  // namespace sluice

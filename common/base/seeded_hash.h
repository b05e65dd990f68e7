// A hash of keys that peers cannot foresee, for tables in memory.
//
// A peer that knows a hash can choose keys that all collide in it. Every search then compares them
// all. This hash depends on a random number of the process, so a peer cannot know it. For the same
// reason, nothing that is saved, sent or divided between shards may use it: see hash.h.
//
// Source: Crosby and Wallach, "Denial of Service via Algorithmic Complexity Attacks" (2003).
#pragma once

#include <cstdint>

#include "common/base/mix_hash.h"

namespace sluice {

extern const uint64_t kHashSeed;  // drawn before main

inline uint64_t SeededHash(uint64_t key) { return MixHash(key ^ kHashSeed); }

}  // namespace sluice

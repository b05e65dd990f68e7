// Draws random ids that are unique in practice.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>

namespace sluice {

// A number in [1, 2^63) from the kernel's random source. Any two draws, anywhere, are equal with a
// probability of 2^-63. Counting up from an id does not overflow.
uint64_t RandomId();

}  // namespace sluice

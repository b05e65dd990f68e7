// Numbers that nobody else has drawn.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>

namespace sluice {

// In [1, 2^63), from the kernel's random source: two draws anywhere are equal with a probability of
// 2^-63. Counting up from one of them does not overflow.
uint64_t RandomId();

}  // namespace sluice

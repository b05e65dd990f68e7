#include "common/base/seeded_hash.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

uint64_t InverseOfOdd(uint64_t a) {
  uint64_t x = a;  // right in the lowest three bits; each round doubles them
  for (int i = 0; i < 5; ++i) x *= 2 - a * x;
  return x;
}

uint64_t UndoXorShift(uint64_t x, int shift) {
  uint64_t y = x;
  for (int done = shift; done < 64; done += shift) y = x ^ (y >> shift);
  return y;
}

// The key whose MixHash is `hash`.
uint64_t KeyOf(uint64_t hash) {
  uint64_t x = UndoXorShift(hash, 31);
  x = UndoXorShift(x * InverseOfOdd(0x94D049BB133111EBu), 27);
  return UndoXorShift(x * InverseOfOdd(0xBF58476D1CE4E5B9u), 30);
}

TEST(SeededHashTest, KeysThatCollideInTheKnownHashDoNotCollideHere) {
  constexpr uint64_t kKeys = 20'000;
  std::set<uint64_t> high_bits, low_bits;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(MixHash(KeyOf(uint64_t{7} << 32 | i)) >> 32, 7u);
    high_bits.insert(SeededHash(KeyOf(uint64_t{7} << 32 | i)) >> 32);
    ASSERT_EQ(MixHash(KeyOf(i << 32 | 7)) & 0xFFFFFFFF, 7u);
    low_bits.insert(SeededHash(KeyOf(i << 32 | 7)) & 0xFFFFFFFF);
  }
  EXPECT_GT(high_bits.size(), kKeys - 100);
  EXPECT_GT(low_bits.size(), kKeys - 100);
}

TEST(SeededHashTest, TheSeedIsDrawn) { EXPECT_NE(kHashSeed, 0u); }

}  // namespace
}  // namespace sluice

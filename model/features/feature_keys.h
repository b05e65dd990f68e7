// Computes the keys of feature values.
//
// The keys are frozen, because they are part of every saved model. Golden values in the test pin
// them.
//
// Format:
//   seed = HashBytes(feature name, 0)
//   value:             HashBytes(value, seed); a bucket or date part has its decimal text as value
//   out of vocabulary: CombineHash(seed, 1)
//   missing value:     CombineHash(seed, 2), with missing_is_value
//   cross:             h = seed; for each part, in order: h = CombineHash(h, key of the part)
//   hash_buckets B:    CombineHash(seed, 3 + key mod B), applied to the key from above
//   dense feature:     the number of its row (dense_rows.h) instead of a hash; with hash_buckets,
//                      key mod B after the feature's first row. Crosses combine the hashes above,
//                      also of dense parts.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/hash.h"

namespace sluice {

inline uint64_t SlotSeed(std::string_view feature_name) { return HashBytes(feature_name, 0); }
inline uint64_t ValueKey(std::string_view value, uint64_t seed) { return HashBytes(value, seed); }
inline uint64_t OutOfVocabularyKey(uint64_t seed) { return CombineHash(seed, 1); }
inline uint64_t MissingKey(uint64_t seed) { return CombineHash(seed, 2); }
inline uint64_t FoldKey(uint64_t key, uint64_t hash_buckets, uint64_t seed) {
  return hash_buckets == 0 ? key : CombineHash(seed, 3 + key % hash_buckets);
}

}  // namespace sluice

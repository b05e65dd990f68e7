// The keys and numbers of single values, for the readers of examples: one by one, and in columns.
// feature_compiler.h says how the keys are computed.
//
// Thread safety: free functions, safe from any thread; LogOnePlus is immutable.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/strings/string_view.h"
#include "model/features/data_summary.h"
#include "model/features/feature_compiler.h"

namespace sluice {

// Weights of examples, besides 0: the metrics sum them in fixed point.
inline constexpr double kMinWeight = 1e-15, kMaxWeight = 1e12;

// Doubles hold every whole number below this.
inline constexpr double kWholeDoubles = 9007199254740992;  // 2^53

// Whether the double is a category.
inline bool IsWhole(double value) {
  return std::abs(value) < kWholeDoubles && value == std::trunc(value);
}

// A value's key, which crosses combine, and what the feature's own slot appends: the key, or the
// row of a dense feature.
struct ValueKeys {
  uint64_t key = 0;
  uint64_t own = 0;
};

// log1p of a number >= 0, with a table for small whole numbers, which are most counts.
class LogOnePlus {
 public:
  LogOnePlus() {
    for (size_t i = 0; i < kTable; ++i) table_[i] = std::log1p(static_cast<double>(i));
  }
  double operator()(double value) const {
    if (value == 0) return value;  // log1p keeps the sign of -0
    if (!(value >= 1 && value < kTable)) return std::log1p(value);
    const size_t whole = static_cast<size_t>(value);
    return static_cast<double>(whole) == value ? table_[whole] : std::log1p(value);
  }

 private:
  static constexpr size_t kTable = 1024;
  double table_[kTable];
};

// ValueKey. For 8 bytes, the length of hexadecimal ids, the constant size removes its loops.
inline uint64_t KeyOfBytes(std::string_view value, uint64_t seed) {
  return value.size() == 8 ? ValueKey(std::string_view(value.data(), 8), seed)
                           : ValueKey(value, seed);
}

// The value's index in the vocabulary, or the size of the vocabulary, which then does not have it.
// An empty vocabulary allows all values and gives each the index 0.
inline size_t FindInVocabulary(const CompiledCategory& category, std::string_view value,
                               DataCounts* counts) {
  if (category.vocabulary.empty()) return 0;
  const auto found = category.vocabulary.find(absl::string_view(value.data(), value.size()));
  const bool known = found != category.vocabulary.end();
  if (counts != nullptr)
    counts->AddValue(category.index, known ? found->second : DataCounts::kOutOfVocabulary);
  return known ? found->second : category.vocabulary.size();
}

// The keys of a value with this hash. `row`: its row among those of the feature if the feature is
// dense and has no hash_buckets.
inline ValueKeys KeysOfHash(const CompiledCategory& category, uint64_t hash, uint64_t row) {
  ValueKeys keys;
  keys.key = keys.own = FoldKey(hash, category.hash_buckets, category.seed);
  if (category.rows.empty()) return keys;
  keys.own = category.rows.begin + (category.hash_buckets > 0 ? hash % category.hash_buckets : row);
  return keys;
}

inline ValueKeys KeysOfValue(const CompiledCategory& category, std::string_view value,
                             DataCounts* counts) {
  const size_t index = FindInVocabulary(category, value, counts);
  const bool known = category.vocabulary.empty() || index < category.vocabulary.size();
  return KeysOfHash(category,
                    known ? KeyOfBytes(value, category.seed) : category.unknown.out_of_vocabulary,
                    index);
}

inline ValueKeys KeysOfMissing(const CompiledCategory& category) {
  return KeysOfHash(category, category.unknown.missing, category.vocabulary.size() + 1);
}

inline ValueKeys KeysOfBucket(const CompiledCategory& category, size_t bucket) {
  const uint64_t key = category.bucket_keys[bucket];
  return {key, category.rows.empty() ? key : category.rows.begin + bucket};
}

}  // namespace sluice

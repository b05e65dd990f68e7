// Checks the declared features and compiles them into flat structs for AppendExample. Says how the
// keys of feature values are computed.
//
// The keys are frozen, because they are part of every saved model. Golden values in the test pin
// them.
//
// Format:
//   seed = HashBytes(name of the feature's embedding, 0)
//   value:             HashBytes(value, seed); a bucket or date part has its decimal text as value
//   out of vocabulary: CombineHash(seed, 1)
//   missing value:     CombineHash(seed, 2), with missing_is_value
//   RAW value:         the value, a decimal integer of 64 bits, as two's complement
//   cross:             h = seed; for each part, in order: h = CombineHash(h, key of the part)
//   hash_buckets B:    CombineHash(seed, 3 + key mod B), applied to the key from above. With
//                      separate_unknown, the bucket of an out-of-vocabulary or missing value that a
//                      word has is instead the next one that no word has, if there is any
//   dense feature:     the number of its row (dense_rows.h) instead of a hash; with hash_buckets,
//                      key mod B after the feature's first row. Crosses combine the hashes above,
//                      also of dense parts.
//
// Thread safety: immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/hash.h"
#include "model/features/cell.h"
#include "model/features/date_format.h"
#include "model/features/feature_schema.h"
#include "model/features/feature_use.h"
#include "model/features/label_rule.h"

namespace sluice {

// `embedding`: EmbeddingNameOf the feature (sparse_table_plan.h), by default the feature's name.
inline uint64_t SlotSeed(std::string_view embedding) { return HashBytes(embedding, 0); }
inline uint64_t ValueKey(std::string_view value, uint64_t seed) { return HashBytes(value, seed); }
inline uint64_t OutOfVocabularyKey(uint64_t seed) { return CombineHash(seed, 1); }
inline uint64_t MissingKey(uint64_t seed) { return CombineHash(seed, 2); }
inline uint64_t FoldKey(uint64_t key, uint64_t hash_buckets, uint64_t seed) {
  return hash_buckets == 0 ? key : CombineHash(seed, 3 + key % hash_buckets);
}

// The hashes of values outside the vocabulary, and of missing ones.
struct UnknownHashes {
  uint64_t out_of_vocabulary = 0, missing = 0;
};
UnknownHashes UnknownHashesOf(const CategoricalFeature& config, uint64_t seed);

// Sets separate_unknown in each feature that does not have it and whose keys depend on it.
void SeparateUnknownValues(JobConfig* job);

inline constexpr int kNone = -1;

// The number of a feature, or the numbers of its vector.
struct CompiledNumeric {
  std::string feature;
  int column = kNone;                      // index in columns
  std::shared_ptr<const DateFormat> date;  // null: the cell is a number
  bool log = false;
  double default_value = 0;      // the raw number of a missing cell
  double offset = 0, scale = 1;  // (value - offset) * scale
  uint32_t dim = 0;              // of a vector; 0: the cell is one number
  char delimiter = 0;            // between the numbers of a text; 0: a text is one number
  size_t first = 0;              // the place of its first number in the example

  size_t size() const { return dim == 0 ? 1 : dim; }
};

// A categorical or bucketed feature, which has one or more keys in an example.
struct CompiledCategory {
  std::string feature;
  uint32_t index = 0;  // its own index in CompiledFeatures::categories
  int column = kNone;
  uint64_t seed = 0;
  std::shared_ptr<const DateFormat> date;  // null: the cell is the value
  bool bucketed = false;
  std::vector<double> boundaries;     // bucketed
  std::vector<uint64_t> bucket_keys;  // boundaries.size() + 1
  // Value -> its index in the job's list. Empty: all values are allowed.
  absl::flat_hash_map<std::string, uint32_t> vocabulary;
  char multi_value_delimiter = 0;  // 0: one value
  char weight_delimiter = 0;       // 0: no weights are written in the cell's text
  bool weighted = false;           // values have weights
  bool mean = false;               // pooling
  bool raw = false;                // the value is the key
  uint64_t hash_buckets = 0;
  bool missing_is_value = false;
  UnknownHashes unknown;
  RowRange rows;     // dense
  int part = kNone;  // index in the example's part keys, if a cross uses it
};

struct CompiledCross {
  std::string feature;
  uint64_t seed = 0;
  uint64_t hash_buckets = 0;
  RowRange rows;           // dense
  std::vector<int> parts;  // part keys, in order
};

// A slot is a category or a cross; the other index is kNone.
struct CompiledSlot {
  int category = kNone;
  int cross = kNone;
};

// The column and category of a feature; kNone where it has none.
struct FeatureSource {
  int column = kNone;
  int category = kNone;
};

struct CompiledFeatures {
  std::vector<std::string> columns;  // label, weight, then the features' columns, each once
  LabelRule label;
  bool decimal_comma = false;             // numbers have the decimal mark ','
  bool csv = false;                       // data.csv says how numbers are written
  bool absent_labels = false;             // `absent` holds for label and weight too
  bool trim_parts = false;                // of cells with several values
  std::vector<std::string> absent;        // values that mean "missing", for parts of such cells
  std::vector<CompiledNumeric> numerics;  // by feature that has numbers
  std::vector<FeatureSchema::Numeric> numeric_info;  // by FeatureSchema::numerics()
  std::vector<CompiledSlot> slots;                   // by FeatureSchema::slots()
  std::vector<FeatureSchema::Slot> slot_info;
  std::vector<CompiledCategory> categories;
  std::vector<CompiledCross> crosses;
  std::vector<int> part_categories;    // [parts]: the category of each part key
  std::vector<FeatureSource> sources;  // by JobConfig.features

  // Whether a text, or a part of a cell, is a missing value.
  bool IsAbsent(std::string_view text) const {
    return text.empty() || std::find(absent.begin(), absent.end(), text) != absent.end();
  }
  // False: the text is no finite number.
  bool Number(std::string_view text, double* value) const {
    return decimal_comma ? ParseCommaNumber(text, value) : ParseNumber(text, value);
  }
};

// INVALID_ARGUMENT names the field, the feature and the fix.
absl::StatusOr<CompiledFeatures> CompileFeatures(const JobConfig& job, const FeatureUse& use);

}  // namespace sluice

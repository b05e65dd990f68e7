// Decides which sparse tables a job's features make, and which features each of them holds.
//
// Features are grouped by (width, key rule, `table`; RAW: and `embedding`). The tables are in the
// order of their first features. A table's name is its `table`, else the `embedding` that all of
// its features name (RAW: a feature without one has its own name), else "embedding"; if several
// tables would have that name, "embedding_WIDTH". The names are part of every saved model: a test
// pins them.
//
// in_wide and in_deep do not split tables: a job of one width has a single table, with the name and
// the initial values that it always had, and features that share an embedding have the same rows
// even if the parts that use them differ. A table's rows have the values of each part that uses
// one of its features, so rows of other features may carry values that nothing reads; `table`
// separates them where that matters.
//
// A feature outside the deep part needs no width. If neither it nor the model has one, it takes the
// first width of its embedding, else of the features with its key rule and `table`.
//
// A model with collections (FeatureUse::by_collections) groups features by their set of collections
// instead of the width, which is the sum of the collections' widths. Features that share an
// embedding have the union of their sets. If several tables would be "embedding_WIDTH", the names
// of their collections follow: "embedding_9_item_bias".
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/feature_use.h"
#include "proto/config.pb.h"

namespace sluice {

// Most sparse tables of a job. Every frame names all shards of all tables.
inline constexpr size_t kMaxSparseTables = 1024;

struct SparseTablePlan {
  struct Table {
    std::string name;
    std::string named_by;  // the path of the field that gives the name: "features[2].table"
    uint32_t width = 0;    // of the embedding, or of all collections; 0: rows have none
    Feature::KeyRule key = Feature::HASHED;
    std::vector<std::string> features;  // names, in the order of the job
    // Indices in FeatureUse::collections, ascending; their values are side by side in this order.
    std::vector<uint32_t> collections;
  };
  std::vector<Table> tables;
  // By JobConfig.features: the index of its table; 0 for features without keys of a sparse table.
  std::vector<uint32_t> table_of;
};

// The name of the key space of a feature, whose hash is the seed of its keys.
const std::string& EmbeddingNameOf(const Feature& feature);

// Only features whose keys a part of the model uses are in a table. INVALID_ARGUMENT names the
// field and the fix
// - when features that share an embedding differ in width, key, table, kind, or in an option that
//   decides which key a value has (hash_buckets, vocabulary, boundaries, date_part, ...; crosses:
//   the embeddings of their parts): the same value would not be the same row in all of them;
// - when features that share a table differ in width, key or collections, or are RAW with different
// embeddings;
// - when two tables would have the same name, or a name that files and flags cannot carry;
// - when there are more than kMaxSparseTables.
absl::StatusOr<SparseTablePlan> PlanSparseTables(const JobConfig& job, const FeatureUse& use);

}  // namespace sluice

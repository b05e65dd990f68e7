// Decides which sparse tables a job's features make, and which features each of them holds.
//
// Features are grouped by (width, key rule, `table`; RAW: and `embedding`). Whether a feature is
// in_wide or in_deep does not matter. The tables are in the order of their first features. A
// table's name is its `table`, else the `embedding` that all of its features name (RAW: a feature
// without one has its own name), else "embedding"; if several tables would have that name,
// "embedding_WIDTH". The names are part of every saved model: a test pins them.
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
    uint32_t width = 0;  // of the embedding; 0: rows have none
    Feature::KeyRule key = Feature::HASHED;
    std::vector<std::string> features;  // names, in the order of the job
  };
  std::vector<Table> tables;
  // By JobConfig.features: the index of its table; 0 for features without keys of a sparse table.
  std::vector<uint32_t> table_of;
};

// The name of the key space of a feature, whose hash is the seed of its keys.
const std::string& EmbeddingNameOf(const Feature& feature);

// Only features whose keys a part of the model uses are in a table. INVALID_ARGUMENT names the
// field and the fix
// - when features that share an embedding differ in width, key, table or hash_buckets, or only some
//   of them are crosses: the same value would not be the same row in all of them;
// - when features that share a table differ in width or key, or are RAW with different embeddings;
// - when two tables would have the same name, or a name that files and flags cannot carry;
// - when there are more than kMaxSparseTables.
absl::StatusOr<SparseTablePlan> PlanSparseTables(const JobConfig& job, const FeatureUse& use);

}  // namespace sluice

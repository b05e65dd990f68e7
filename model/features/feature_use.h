// Says which parts of a model use the features of a job.
//
// Thread safety: immutable.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

// Every model gives its FeatureUse when it creates its FeatureSchema. A model with a single part
// maps it to `wide` or to `deep`, whose switches (in_wide, in_deep) then leave a feature out.
struct FeatureUse {
  struct Parts {
    bool wide = true;
    bool deep = true;
    // The condition for a part to exist, such as "in_deep needs hidden_units", for the error about
    // a feature that no part uses. May be empty.
    std::string needs;
  };
  Parts numbers;  // the parts that use the numbers of numeric features
  Parts keys;     // the parts that use the keys of the other features
  // The model keeps rows of dense features in dense tables. Otherwise `dense: true` is refused.
  bool dense_rows = false;
  // The model has all tables of the job's SparseTablePlan. Otherwise features that need more than
  // one are refused.
  bool several_tables = false;
  // The width of the embeddings of features without an embedding_dim of their own. Without
  // keys.deep rows have no embeddings, whatever the features say.
  uint32_t embedding_dim = 0;
  // The model multiplies the values of keys by Batch::key_weights. Otherwise `weight_delimiter` is
  // refused.
  bool key_weights = false;

  // One lookup of a model that declares its lookups by name and feature.
  struct Collection {
    std::string name;
    uint32_t dim = 0;                   // width of its values
    std::vector<std::string> features;  // names
  };
  // Only keys of the features of `collections` are used, and the rows of their tables hold the
  // collections side by side: `keys` and `embedding_dim` then decide nothing.
  bool by_collections = false;
  std::vector<Collection> collections;
};

inline bool InWide(const Feature& feature) { return !feature.has_in_wide() || feature.in_wide(); }
inline bool InDeep(const Feature& feature) { return !feature.has_in_deep() || feature.in_deep(); }

// True when the feature gives keys: of a sparse table, or rows of dense tables.
inline bool HasKeys(const Feature& feature) {
  return feature.has_categorical() || feature.has_cross() ||
         feature.numeric().boundaries_size() > 0;
}

}  // namespace sluice

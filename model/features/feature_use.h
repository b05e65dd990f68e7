// Which parts of a model use the features of a job.
//
// Thread safety:
//   plain data.
#pragma once

#include <string>

#include "proto/config.pb.h"

namespace sluice {

// Every model says this when it creates its FeatureSchema. A model with a single part maps it to
// `wide` or to `deep`, whose switches (in_wide, in_deep) then leave a feature out.
struct FeatureUse {
  struct Parts {
    bool wide = true;
    bool deep = true;
    // What the parts need, for the error about a feature that no part uses, such as "in_deep needs
    // hidden_units". May be empty.
    std::string needs;
  };
  Parts numbers;  // what numeric features give
  Parts keys;     // what categorical, bucketed and crossed features give
};

// The feature gives keys of a sparse table.
inline bool HasKeys(const Feature& feature) {
  return feature.has_categorical() || feature.has_cross() ||
         feature.numeric().boundaries_size() > 0;
}

}  // namespace sluice

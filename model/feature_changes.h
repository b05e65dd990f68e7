// What the tables of a new job take from a saved model whose job had other features: the weights of
// an input stay with the feature that feeds it, and a sparse table stays with its features.
//
// Features may come, go, move among the others and be widened. The rows of a feature that is gone
// stay in its sparse table.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "model/model_spec.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

struct FeatureChanges {
  std::vector<std::string> refused;  // what no table can follow
  // One line for all features that came, went, moved or were widened, then one for each table that
  // differs, with the numbers of its rows or columns that are kept, new and dropped.
  std::vector<std::string> notes;
};

// One of the two jobs, and its model.
struct JobModel {
  const JobConfig* job;
  const ModelSpec* spec;
};

// True when both models know their rows by input, so that features may change between their jobs.
bool CanFollowFeatures(const ModelSpec& saved, const ModelSpec& job);

// Sets `start` in those of `tables`, the tables of `job`, that differ from the saved tables in
// `manifest`. Compares no options of features: see model_match.h.
// REQUIRES: CanFollowFeatures.
FeatureChanges FollowFeatures(const JobModel& saved, const JobModel& job, const Manifest& manifest,
                              std::vector<TableConfig>* tables);

}  // namespace sluice

// The questions that the checks of a job's configuration ask the job's model.
//
// common/config knows no model: the caller that makes a job effective passes the rules, which the
// model's folder implements (model/model_list.h finds them by the job's model).
//
// Thread safety: immutable.
#pragma once

#include <string>
#include <vector>

#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// The groups of parameters that have their own optimizer (OptimizersConfig). A text is empty
// when the model of the job has the group. Otherwise it says why the group is missing and what to
// do about options that need it: "has no effect ...; remove it".
struct ModelParts {
  std::string no_dense;
  std::string no_embedding;
  std::string no_wide;
  // Not empty when the embedding and wide groups are in dense tables: why options of the sparse
  // table have no effect.
  std::string no_sparse;

  bool dense() const { return no_dense.empty(); }
  bool embedding() const { return no_embedding.empty(); }
  bool wide() const { return no_wide.empty(); }
  // The model has a sparse table: the embedding and wide groups are its columns.
  bool sparse() const { return no_sparse.empty() && (embedding() || wide()); }
};

// The features of every `job` have their defaults. FindProblems and FindUnused get a job with all
// its defaults.
class ModelRules {
 public:
  virtual ~ModelRules() = default;

  // Fills in the defaults of the model's own options. Filling them again changes nothing. An option
  // that would have no effect is not filled in, since FindUnused refuses it.
  virtual void FillDefaults(JobConfig* job) const = 0;

  virtual ModelParts PartsOf(const JobConfig& job) const = 0;

  // Values of the model's options that are impossible or contradict each other, and features that
  // contradict the model.
  virtual std::vector<ConfigProblem> FindProblems(const JobConfig& job) const = 0;

  // The model's own options that are set and would have no effect.
  virtual std::vector<ConfigProblem> FindUnused(const JobConfig& job) const = 0;
};

}  // namespace sluice

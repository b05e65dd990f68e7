// The features and tables of a job whose network a program of the user computes.
//
// Scheduler, pservers and command line need no more of a program than this. Its network is in
// python/core, and only the program itself has one.
//
// Thread safety: immutable.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/sparse_table_plan.h"
#include "model/model_list.h"
#include "model/model_spec.h"
#include "model/program/program_shape.h"

namespace sluice {

class ProgramSpec : public ModelSpec {
 public:
  // REQUIRES: job.model() is program.
  static absl::StatusOr<std::unique_ptr<ModelSpec>> Create(const JobConfig& job);

  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  // The sparse tables first: a network makes the gradients of its rows last (gradient_buckets.h).
  const std::vector<TableConfig>& tables() const override { return tables_; }
  const std::vector<int>& sparse_tables() const override { return sparse_tables_; }
  const std::vector<int>& dense_tables() const override { return dense_tables_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override;
  const ProgramShape& shape() const { return shape_; }

 private:
  ProgramSpec() = default;
  void DeriveShape(const JobConfig& job, const SparseTablePlan& plan);
  void DeriveTables(const JobConfig& job);
  // Undoes what settings for all tables have changed: the update of a buffer is its definition.
  void ResetBuffers();

  std::shared_ptr<const FeatureSchema> schema_;
  ProgramShape shape_;
  std::vector<TableConfig> tables_;
  std::vector<int> sparse_tables_, dense_tables_;
};

// The model "program", without its network, which only the program has.
ModelEntry ProgramModel();

// SHA-256, in hexadecimal, of what a program declares in `job`: its collections and parameters with
// their shapes, rules and initializers, and the features. Digest and values of the declaration do
// not count. `job` is as the program declares it: defaults that are filled in change the digest.
std::string ProgramDigest(const JobConfig& job);

// The first difference between two declarations, `here` and in the job, such as
// "modified: parameters[3].shape[0]: 64 -> 32"; empty: they are the same. Defaults do not count.
std::string FirstDifference(const JobConfig& here, const JobConfig& of_job);

}  // namespace sluice

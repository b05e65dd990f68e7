// The features and tables of a linear model: one weight a number, and a bias.
//
// Thread safety: immutable.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_spec.h"

namespace sluice {

class LinearSpec : public ModelSpec {
 public:
  // REQUIRES: job.model() is linear.
  static absl::StatusOr<std::unique_ptr<ModelSpec>> Create(const JobConfig& job);

  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  const std::vector<int>& sparse_tables() const override { return sparse_tables_; }
  // The weights, then the bias when has_bias().
  const std::vector<int>& dense_tables() const override { return dense_tables_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override;
  bool has_bias() const { return tables_.size() == 2; }

 private:
  LinearSpec() = default;
  void AddTable(const JobConfig& job, const char* name, size_t size, float initial_value);

  std::shared_ptr<const FeatureSchema> schema_;
  std::vector<TableConfig> tables_;
  const std::vector<int> sparse_tables_;
  std::vector<int> dense_tables_;
};

}  // namespace sluice

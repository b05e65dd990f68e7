// The features and tables of a counting model (counting_model.h).
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

class CountingSpec : public ModelSpec {
 public:
  // INVALID_ARGUMENT when no feature of the job has keys.
  static absl::StatusOr<std::unique_ptr<ModelSpec>> Create(const JobConfig& job);

  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  const std::vector<int>& sparse_tables() const override { return sparse_tables_; }
  const std::vector<int>& dense_tables() const override { return dense_tables_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override;

 private:
  CountingSpec() = default;

  std::shared_ptr<const FeatureSchema> schema_;
  std::vector<TableConfig> tables_;
  const std::vector<int> sparse_tables_ = {0};
  std::vector<int> dense_tables_;
};

}  // namespace sluice

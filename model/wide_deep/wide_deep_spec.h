// The features, tables and shape of a job's wide_deep model.
//
// Thread safety: immutable.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/sparse_table_plan.h"
#include "model/model_spec.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

class WideDeepSpec : public ModelSpec {
 public:
  // REQUIRES: job.model() is wide_deep.
  static absl::StatusOr<std::unique_ptr<ModelSpec>> Create(const JobConfig& job);

  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  const std::vector<int>& sparse_tables() const override { return sparse_tables_; }
  const std::vector<int>& dense_tables() const override { return dense_tables_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override;
  std::optional<std::map<std::string, InputTable>> input_tables() const override;
  const WideDeepShape& shape() const { return shape_; }
  // Dense features: the rows of the tables "embedding" and "wide/embedding", which then are the
  // first dense tables, in this order; a table without rows does not exist.
  const RowRange& deep_rows() const { return deep_rows_; }
  const RowRange& wide_rows() const { return wide_rows_; }

 private:
  WideDeepSpec() = default;
  absl::Status DeriveShape(const JobConfig& job);
  // The slots of the shape, and the rows that they need.
  absl::Status DeriveSlots(const JobConfig& job);
  void DeriveRows();
  void DeriveTables(const JobConfig& job);
  // Adds sparse_tables()[t].
  void AddSparse(const JobConfig& job, size_t t);
  void AddRows(const JobConfig& job);
  // The rows `range` of dense features, as inputs of a table.
  InputTable RowsOfFeatures(const RowRange& range) const;
  // INVALID_ARGUMENT names the feature of a sparse table whose files a dense table would have.
  absl::Status CheckNames() const;
  void AddDense(const std::string& name, std::vector<uint64_t> shape, Initializer initializer,
                const OptimizerConfig& optimizer);

  std::shared_ptr<const FeatureSchema> schema_;
  SparseTablePlan plan_;
  WideDeepShape shape_;
  RowRange deep_rows_, wide_rows_;
  std::vector<TableConfig> tables_;
  std::vector<int> sparse_tables_, dense_tables_;
};

}  // namespace sluice
